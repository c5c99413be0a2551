"""The command line from end to end on planted data: what it prints, what it leaves, how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from distagg import compare, rank
from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine.read_rankings import read_rankings
from distagg.models import MODELS
from distagg.models.registry import FAMILIES

Capture = pytest.CaptureFixture[str]


def out_json(capsys: Capture, *command: str) -> object:
    assert main([*command, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_rank_then_evaluate_equals_compare(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    metrics = ["-m", "ndcg@5", "-m", "map", "-m", "err", "-m", "tau"]
    compared = out_json(capsys, "compare", str(planted), "--models", "rrf", *metrics)
    for name in ("rankings", "rankings.csv", "rankings.run"):
        assert main(["rank", "rrf", str(planted), "-o", str(tmp_path / name)]) == 0
        capsys.readouterr()
        evaluated = out_json(capsys, "evaluate", str(tmp_path / name), str(planted), *metrics)
        assert evaluated["means"] == pytest.approx(compared["means"]["rrf"], abs=1e-9)


def test_rankings_have_the_promised_columns(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["rank", "borda", str(planted), "-o", str(tmp_path / "r")]) == 0
    assert (tmp_path / "r" / "_SUCCESS").exists()
    table = pq.read_table(sorted((tmp_path / "r").glob("part-*.parquet")))
    assert table.column_names == ["query", "item", "rank", "score"]
    info = out_json(capsys, "info", str(planted))
    assert table.num_rows == info["items"]
    assert len(table["query"].unique()) == info["queries"]


def test_rank_takes_weights_depth_and_top(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    data = Dataset.open(planted)
    first, second = data.experts[:2]
    (tmp_path / "w.json").write_text(json.dumps({first: 4, second: 0}))
    for number, weights in enumerate((f"{first}:4,{second}:0", f"@{tmp_path / 'w.json'}")):
        target = tmp_path / f"{number}.parquet"
        chosen = ["-p", f"weights={weights}", "-p", "DEPTH=3", "--top", "2"]
        assert main(["rank", "Rrf", str(planted), "-o", str(target), "--format", "parquet", *chosen]) == 0
        expected = rank("rrf", data, weights={first: 4, second: 0}, depth=3, top=2)
        assert read_rankings(target).to_pylist() == expected.to_pylist()
    assert main(["fit", "rrf", str(planted), "-o", str(tmp_path / "m"), "-p", "weights=auto"]) == 0
    assert main(["rank", str(tmp_path / "m"), str(planted), "-o", str(tmp_path / "r"), "--top", "1"]) == 0
    assert len(read_rankings(tmp_path / "r")) == data.manifest.queries
    assert main(["rank", "rrf", str(planted), "-o", str(tmp_path / "x"), "-p", "weights=nobody:2"]) == 2
    assert "unknown expert in weights 'nobody'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        ("theta_mpm", [], "reliability"),
        ("crf", ["-p", "rounds=1"], "reciprocal"),
        ("lambdarank", ["-p", "rounds=1"], "expert"),
        ("lambdarank", ["-p", "rounds=1", "-p", "hidden=2"], "numbers"),
        ("stagg", ["-p", "rounds=1", "-p", "features=cp"], "weight: 1 x 3 x 1 numbers"),
        ("rrf", [], "nothing to learn"),
    ],
)
def test_fit_says_what_was_learned(
    model: str, settings: list[str], said: str, planted: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["fit", model, str(planted), "-o", str(tmp_path / "model"), *settings]) == 0
    assert said in capsys.readouterr().out


def test_fit_saves_a_model_that_rank_takes(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    learned = out_json(capsys, "fit", "rrf", str(planted), "-o", str(tmp_path / "m"), "-p", "c=auto")
    assert learned["params"]["c"] > 0
    assert main(["rank", str(tmp_path / "m"), str(planted), "-o", str(tmp_path / "a.csv")]) == 0
    assert main(["rank", "rrf", str(planted), "-p", f"c={learned['params']['c']}", "-o", str(tmp_path / "b.csv")]) == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_bestinput_finds_a_good_expert(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    import numpy as np

    from distagg import Dataset

    learned = out_json(capsys, "fit", "bestinput", str(planted), "-o", str(tmp_path / "m"))
    best = Dataset.open(planted).experts[int(np.argmax(learned["params"]["expert_quality"]))]
    assert best.startswith("good")


def test_compare_prints_a_table_and_writes_a_report(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    report = tmp_path / "r.html"
    assert main(["compare", str(planted), "--models", "rrf,mean", "--folds", "3", "--report", str(report)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["model", "ndcg@5", "ndcg@10", "p@5", "map"]
    assert "p (Holm)" in out
    page = report.read_text()
    assert "rrf" in page
    assert "://" not in page


def test_compare_json_has_the_promised_shape(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    models, to = ("--models", "rrf,borda"), ("-o", str(tmp_path / "result.json"))
    result = out_json(capsys, "compare", str(planted), *models, "--folds", "letor5", "-m", "AP", *to)
    assert set(result) >= {"means", "results", "tests"}
    assert set(result["means"]) == {"rrf", "borda"}
    assert len(result["results"]) == 10
    assert set(result["results"][0]) == {"model", "fold", "metric", "value", "seed"}
    mean = sum(row["value"] for row in result["results"] if row["model"] == "rrf") / 5
    assert result["means"]["rrf"]["map"] == pytest.approx(mean)
    assert 0 < mean < 1
    written = json.loads((tmp_path / "result.json").read_text())
    queries, values = written.pop("query_ids"), written.pop("per_query")
    assert written == result
    assert queries == [name for chunk in Dataset.open(planted).chunks() for name in chunk.query_ids.to_pylist()]
    alone = compare(Dataset.open(planted), ["rrf"], metrics=["map"])
    assert values["rrf"] == alone["per_query"]["rrf"]


def test_all_models_beat_chance_on_planted_truth(planted: Path, capsys: Capture) -> None:
    few = ("-p", "blend.crf=2", "-p", "blend.lambdamart=1")  # members: all 28 take as long as all other models
    result = out_json(capsys, "compare", str(planted), "--folds", "3", "-m", "tau", *few)
    assert set(result["means"]) == {name for name, model in MODELS.items() if "lists" in model.inputs}
    tau = {name: values["tau"] for name, values in result["means"].items()}
    assert tau.pop("combmin") > 0.0  # the worst of an item's lists counts, so items of many lists fall
    assert all(value > 0.1 for value in tau.values()), tau


def test_models_lists_every_parameter(capsys: Capture) -> None:
    rows = out_json(capsys, "models")
    by_name = {row["name"]: row for row in rows}
    assert by_name["rrf"]["parameters"]["c"]["default"] == 60.0
    assert all(about["help"] for row in rows for about in row["parameters"].values())
    assert main(["models"]) == 0
    assert main(["models", "rrf"]) == 0
    assert "auto" in capsys.readouterr().out


def test_models_are_listed_by_family(capsys: Capture) -> None:
    rows = out_json(capsys, "models")
    assert {row["family"] for row in rows} == set(FAMILIES.values())
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    family = lines.index("majorities of lists:")
    assert lines[family + 1].split()[0] == "condorcet"
    assert any(line.split()[:1] == ["crf*"] for line in lines)


@pytest.mark.parametrize("name", [None, *MODELS])
def test_models_fits_a_terminal_of_80_columns(name: str | None, capsys: Capture) -> None:
    assert main(["models", *([name] if name else [])]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert all(word in shown for model in ([name] if name else MODELS) for word in MODELS[model].summary.split())


def test_info_draws_a_report(planted: Path, crowd: Path, tmp_path: Path) -> None:
    for name, data in (("a.html", planted), ("b.html", crowd)):
        assert main(["info", str(data), "--report", str(tmp_path / name)]) == 0
        assert "<svg" in (tmp_path / name).read_text()


def test_not_converged_is_said_and_exits_1(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    command = ["rank", "mc4", str(planted), "-o", str(tmp_path / "r"), "-p", "steps=1"]
    assert main(command) == 1
    assert "not converged" in capsys.readouterr().err
    assert (tmp_path / "r" / "_SUCCESS").exists()


@pytest.mark.cluster
def test_rank_is_byte_identical_inline_and_with_workers(planted: Path, tmp_path: Path) -> None:
    places = {"inline": [], "one": ["--workers", "1"], "two": ["--workers", "2"]}
    for name, where in places.items():
        assert main(["rank", "rrf", str(planted), "-o", str(tmp_path / name), *where]) == 0
    names = sorted(file.name for file in (tmp_path / "inline").iterdir())
    for place in ("one", "two"):
        assert sorted(file.name for file in (tmp_path / place).iterdir()) == names
        for name in names:
            assert (tmp_path / place / name).read_bytes() == (tmp_path / "inline" / name).read_bytes()


def test_demo_leaves_a_table_and_a_report(tmp_path: Path, capsys: Capture) -> None:
    for _ in range(2):  # the second run replaces the first
        assert main(["demo", "--queries", "40", "-o", str(tmp_path / "demo")]) == 0
        told = capsys.readouterr()
        assert "rrf" in told.out
        assert "trec protocol" in told.out
        first, _, rest = told.err.partition("now 3 models")
        assert "rrf" in first, "the table of the quick rules comes before anything that compiles"
        assert "crf" not in first
        assert len(rest.partition("what this was:")[2].partition("what to type next:")[0].strip().splitlines()) == 8
    report = (tmp_path / "demo" / "report.html").read_text()
    for page in ("models.html", "experts.html"):
        assert f'href="{page}"' in report
        assert "crf" in (tmp_path / "demo" / page).read_text()
    assert (tmp_path / "demo" / "rankings" / "_SUCCESS").exists()


@pytest.mark.parametrize("on_path", [True, False])
def test_demo_says_how_to_find_the_command(on_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distagg.cli.demo import _found

    (tmp_path / "activate").touch()
    (tmp_path / "distagg").touch(mode=0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path if on_path else tmp_path / "elsewhere"))
    assert _found() == ("" if on_path else f"  source {tmp_path / 'activate'}\n")


def test_demo_does_not_touch_other_peoples_folders(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["demo", "--queries", "10", "-o", str(tmp_path)]) == 2
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("command", ["demo", "import", "info", "models", "fit", "rank", "evaluate", "compare"])
def test_every_command_explains_itself(command: str, capsys: Capture) -> None:
    assert main([command, "--help"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 5
