"""experts, explain and features from end to end on planted data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

import distagg
from distagg.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def model(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("models") / "crf"
    assert main(["fit", "crf", str(planted), "-o", str(target), "-p", "rounds=5"]) == 0
    return target


def out_json(capsys: Capture, *command: str) -> dict:
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_experts_finds_the_planted_kinds(model: Path, planted: Path, capsys: Capture) -> None:
    """On a made-up list, and on the data, which have labels to measure a loss on."""
    for data in ([], ["--data", str(planted)]):
        found = out_json(capsys, "experts", str(model), *data)
        kinds = {row["expert"]: (row["expert"].split("-")[0], row["order"]) for row in found["experts"]}
        assert len(kinds) == 25
        order = {
            kind: np.mean([o for k, o in kinds.values() if k == kind]) for kind in ("good", "random", "adversarial")
        }
        assert order["good"] > order["random"] > order["adversarial"]
        assert order["adversarial"] < 0.0
        assert (found["experts"][0]["loss"] is None) == (not data)
    assert found["weights"]["columns"] == ["missing", "log won", "log lost", "reciprocal"]


def test_experts_draws_a_report(model: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["experts", str(model), "--report", str(tmp_path / "r.html")]) == 0
    assert "useful (" in capsys.readouterr().out
    page = (tmp_path / "r.html").read_text()
    assert page.count("<svg") == 2  # weights and the learning curve
    assert "good-0, log won: " in page


def test_retraining_without_the_unused(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert main(["fit", "bestinput", str(planted), "-o", first]) == 0
    found = out_json(capsys, "experts", first, "--data", str(planted), "--retrain", second)
    made = found["retrained"]
    assert len(made["without"]) == 24  # all but the one that it chose
    assert made["after"] == pytest.approx(made["before"])
    assert json.loads((Path(second) / "manifest.json").read_text())["about"]["without"] == made["without"]
    assert main(["rank", second, str(planted), "-o", str(tmp_path / "ranked")]) == 0
    assert main(["experts", first, "--data", str(planted), "--retrain", str(tmp_path / "third")]) == 0
    assert "all experts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["experts", "MODEL", "--retrain", "OUT"], "give --data"),
        (["experts", "MODEL", "--data", "DATA", "--retrain", "MODEL"], "exists already"),
        (["experts", "DATA"], "a model made by 'distagg fit'"),
        (["explain", "MODEL", "DATA", "--query", "none"], "no query 'none'"),
        (["explain", "crf", "DATA", "--query", "q0"], "must be fitted first"),
        (["explain", "rff", "DATA", "--query", "q0"], "did you mean 'rrf'"),
        (["explain", "MODEL", "DATA", "--query", "q0", "--depth", "3"], "-p has no effect on a fitted model"),
        (["features", "DATA", "-o", "DATA"], "exists already"),
        (["features", "DATA", "-o", "OUT", "--kind", "svt"], "did you mean 'svd'"),
        (["features", "DATA", "-o", "OUT", "--pairs", "logs"], "did you mean 'log'"),
        (["features", "DATA", "-o", "OUT", "--rank", "0"], "from 1 on"),
    ],
)
def test_wrong_usage(words: list[str], said: str, model: Path, planted: Path, tmp_path: Path, capsys: Capture) -> None:
    places = {"DATA": str(planted), "OUT": str(tmp_path / "out"), "MODEL": str(model)}
    assert main([places.get(word, word) for word in words]) in (2, 3)
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_explain_says_who_moved_what(model: Path, planted: Path, tmp_path: Path, capsys: Capture) -> None:
    report = str(tmp_path / "r.html")
    assert main(["explain", str(model), str(planted), "--query", "q3", "--query", "q5", "--report", report]) == 0
    out = capsys.readouterr().out
    assert out.count("is the sum of the experts' lifts") == 2
    assert (tmp_path / "r.html").read_text().count("<svg") == 4
    told = out_json(capsys, "explain", str(model), str(planted), "--query", "q3")
    assert main(["rank", str(model), str(planted), "-o", str(tmp_path / "ranked.csv")]) == 0
    ranked = pd.read_csv(tmp_path / "ranked.csv").query("query == 'q3'")
    assert [item["item"] for item in told[0]["items"]] == ranked["item"].tolist()
    height = ranked["score"] - ranked["score"].mean()
    np.testing.assert_allclose([sum(item["lifts"].values()) for item in told[0]["items"]], height, atol=1e-9)
    assert main(["explain", "rrf", str(planted), "--query", "q3"]) == 0
    capsys.readouterr()
    plain = out_json(capsys, "explain", "rrf", str(planted), "--query", "q3")[0]
    first = plain["experts"][0]
    doubled = out_json(capsys, "explain", "rrf", str(planted), "--query", "q3", "--weights", f"{first}:2")[0]
    lifts = [{row["item"]: row["lifts"][first] for row in told["items"]} for told in (plain, doubled)]
    assert lifts[1] == pytest.approx({item: 2 * lift for item, lift in lifts[0].items()})


@pytest.mark.parametrize("settings", [[], ["--kind", "borda"], ["--pairs", "all", "--rank", "2"], ["--combined"]])
def test_features_are_those_of_the_python_function(settings: list[str], planted: Path, tmp_path: Path) -> None:
    assert main(["features", str(planted), "-o", str(tmp_path / "f"), *settings]) == 0
    words = iter(settings)
    asked = {}
    for word in words:
        asked[word.removeprefix("--")] = True if word == "--combined" else next(words)
    asked = {**asked, **({"rank": int(asked["rank"])} if "rank" in asked else {})}
    expected = distagg.features(distagg.Dataset.open(planted), **asked)
    assert pq.read_table(tmp_path / "f").replace_schema_metadata(None).equals(expected)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "f"), expected.to_pandas())
    assert pl.read_parquet(tmp_path / "f" / "*.parquet").equals(pl.from_arrow(expected))
    about = json.loads(pq.read_schema(tmp_path / "f" / "part-00000.parquet").metadata[b"distagg features"])
    assert about["kind"] == asked.get("kind", "svd")


@pytest.mark.cluster
def test_features_have_the_same_bytes_from_workers(planted: Path, tmp_path: Path) -> None:
    assert main(["features", str(planted), "-o", str(tmp_path / "a")]) == 0
    assert main(["features", str(planted), "-o", str(tmp_path / "b"), "--workers", "2"]) == 0
    names = sorted(file.name for file in (tmp_path / "a").iterdir())
    assert names == sorted(file.name for file in (tmp_path / "b").iterdir())
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names)
