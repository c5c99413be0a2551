"""What a command can do, a step of a job can do: both are made of one table, and steps do what their fields say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import pytest

from distagg.cli.commands import CLUSTER, DISTAGG, EVERYWHERE
from distagg.cli.main import main
from distagg.engine.compare import DEFAULT_METRICS
from distagg.engine.export import PRODUCTS
from distagg.errors import UsageError
from distagg.examples import write_example
from distagg.pipeline import step_options as options
from distagg.pipeline.fields import STEPS
from distagg.pipeline.spec import make_job
from distagg.pipeline.step_options import OPTIONS
from distagg.rankings.files import FORMATS
from distagg.sources import SOURCES

JOB = {param.name for param in (*EVERYWHERE, *CLUSTER)} | {"output", "outputs"}  # seed, place and the run directory
FILES = {"sources", "kind", "qrels", "columns"}  # of commands that read files; a job imports them
EXPANSION = {"expand_experts", "expand_items"}  # the step expand does it
ELSEWHERE = {  # options of a command that its step does not need, by command
    "import": JOB | {"sources", "kind"},  # the fields files and source
    "expand": JOB,
    "fit": JOB | FILES | EXPANSION,
    "tune": JOB | FILES | EXPANSION,
    "rank": JOB | FILES | EXPANSION | {"report", "experts"},  # the run's report, _experts.parquet
    # a step evaluates one ranking on a dataset: nothing to test against, no judged query that a run could lack
    "evaluate": JOB | EXPANSION | {"words", "qrels", "baseline", "missing"},
    "compare": JOB | FILES | EXPANSION | {"report"},
    "board": JOB | FILES | {"matrix"},  # it is always written
}
ONLY_STEPS = {  # fields that their command does not need, by step
    "import": {"source", "files"},
    "expand": set(),  # the dataset is an argument of both
    "tune": {"dataset", "goal"},  # the first -m
    "rank": {"dataset", "chunk_entries"},
    "evaluate": {"dataset", "rankings"},
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_commands_and_steps_have_the_same_options(name: str) -> None:
    command = DISTAGG.get_command(click.Context(DISTAGG), name)
    by_name = {param.name: param for param in command.params}
    assert set(by_name) - ELSEWHERE[name] == set(STEPS[name]) - ONLY_STEPS.get(name, {"dataset"})
    for option, field in OPTIONS[name].items():
        if field.flags:
            assert (by_name[option].help, tuple(by_name[option].opts)) == (field.help, field.flags)  # type: ignore[attr-defined]


def test_every_row_of_the_table_is_a_command_and_a_step() -> None:
    assert set(OPTIONS) == set(ELSEWHERE)
    assert set(STEPS) == {*OPTIONS, "scale"}


def test_choices_are_those_of_the_code() -> None:
    """The table repeats them, because what has them takes long to import."""
    assert set(options.KINDS) == set(SOURCES)
    assert options.FORMATS == FORMATS
    assert set(options.PRODUCTS) == set(PRODUCTS)
    assert options.DEFAULT_METRICS == DEFAULT_METRICS


def run(folder: Path, name: str, steps: dict[str, dict[str, Any]]) -> Path:
    """Run a job of these steps in a folder; gives the outputs."""
    (folder / f"{name}.json").write_text(json.dumps({"name": name, "steps": steps}))
    assert main(["run", f"{name}.json"]) == 0
    return folder / "runs" / name / "latest" / "output"


@pytest.fixture
def ratings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "ratings"
    write_example("ratings", folder)
    monkeypatch.chdir(folder)
    return folder


IMPORT = {
    "do": "import",
    "source": "ratings",
    "files": ["u.data"],
    "users": "u.user",
    "items": "u.item",
    "scale": "1,5",
}


def test_a_ranking_of_ratings_is_that_of_the_command(ratings: Path) -> None:
    asked = {"where": "age < 30", "support": True, "titles": True, "min_support": 5, "bootstrap": 3, "top": 7}
    rank = {"do": "rank", "model": "borda", "dataset": "movies", "format": "csv", **asked}
    output = run(ratings, "job", {"movies": IMPORT, "top": rank})
    command = ["rank", "borda", str(output / "movies"), "-o", "top.csv", "--where", "age < 30", "--support", "--titles"]
    assert main([*command, "--min-support", "5", "--bootstrap", "3", "--top", "7"]) == 0
    assert (output / "top.csv").read_bytes() == (ratings / "top.csv").read_bytes()
    assert "Movie" in (ratings / "top.csv").read_text()


def test_completed_ratings_are_ranked_and_judged_as_by_the_commands(
    ratings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    completed = {"complete": "neighbours", "completion": {"most": 5}, "dataset": "movies"}
    judged = {"do": "evaluate", "rankings": "top", "where": "gender = 'F'", **completed}
    rank = {"do": "rank", "model": "borda", "format": "csv", **completed}
    output = run(ratings, "job", {"movies": IMPORT, "top": rank, "judged": judged})
    assert "mean over" in capsys.readouterr().out
    data, completion = str(output / "movies"), ["--complete", "neighbours", "-c", "most=5"]
    assert main(["rank", "borda", data, "-o", "top.csv", *completion]) == 0
    assert (output / "top.csv").read_bytes() == (ratings / "top.csv").read_bytes()
    assert main(["evaluate", "top.csv", data, *completion, "--where", "gender = 'F'", "-o", "judged.json"]) == 0
    means = [json.loads(file.read_text())["means"] for file in (output / "judged.json", ratings / "judged.json")]
    assert means[0] == means[1]


def test_weights_and_depth_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "runs"
    write_example("metasearch", folder)
    monkeypatch.chdir(folder)
    files = ["bm25.run", "dense.run"]
    lists = {"do": "import", "source": "trec", "files": files}
    fused = {"do": "rank", "model": "rrf", "dataset": "lists", "weights": "dense:2", "depth": 3, "format": "trec"}
    output = run(folder, "job", {"lists": lists, "fused": fused})
    assert main(["rank", "rrf", *files, "--weights", "dense:2", "--depth", "3", "-o", "fused.run"]) == 0
    assert (output / "fused.trec").read_bytes() == (folder / "fused.run").read_bytes()
    fused["settings"] = {"depth": 3}
    with pytest.raises(UsageError, match=r"steps.fused: found depth as an option of its own and among the settings"):
        make_job({"name": "twice", "steps": {"lists": lists, "fused": fused}})


def test_a_board_is_that_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "battles"
    write_example("pairs", folder)
    monkeypatch.chdir(folder)
    battles = {"do": "import", "source": "pairs", "files": ["battles.csv"]}
    board = {"do": "board", "dataset": "battles", "anchor": "ada:1200", "since": "2026-02-01", "min_battles": 10}
    board |= {"by": "month", "settings": {"ties": "davidson"}}
    output = run(folder, "job", {"battles": battles, "standings": board})
    command = ["board", "battles.csv", "--anchor", "ada:1200", "--since", "2026-02-01", "--min-battles", "10"]
    assert main([*command, "--by", "month", "-p", "ties=davidson", "-o", "board.csv", "--matrix", "chances.csv"]) == 0
    for name in ("board.csv", "chances.csv"):
        assert (output / "standings" / name).read_bytes() == (folder / name).read_bytes()
    report = (folder / "runs" / "job" / "latest" / "report.html").read_text()
    assert 'href="output/standings/board.html"' in report


def test_names_are_no_formulas_in_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.csv").write_text("winner,loser\n=a,b\nb,=a\n")
    battles = {"do": "import", "source": "pairs", "files": ["b.csv"]}
    rank = {"do": "rank", "model": "bradley_terry", "dataset": "battles", "format": "csv", "safe_csv": True}
    board = {"do": "board", "dataset": "battles", "safe_csv": True}
    output = run(tmp_path, "job", {"battles": battles, "ranked": rank, "standings": board})
    for file in ("ranked.csv", "standings/board.csv", "standings/chances.csv"):
        text = (output / file).read_text()
        assert "'=a" in text
        assert "=a" not in text.replace("'=a", "")


def test_what_depends_on_more_than_its_block_is_ranked_again(ratings: Path) -> None:
    """The second run has other titles, which the blocks of the ratings do not tell."""
    steps = {"movies": IMPORT, "top": {"do": "rank", "model": "borda", "dataset": "movies", "titles": True}}
    run(ratings, "job", steps)
    titles = (ratings / "u.item").read_text().replace("Movie 2 ", "Another 2 ")
    (ratings / "u.item").write_text(titles)
    output = run(ratings, "job", steps)
    assert "Another 2 (1999)" in pq.read_table(output / "top")["title"].to_pylist()


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"completion": {"most": 5}}, "completion: has no effect without complete"),
        ({"complete": "pmf2"}, "complete: unknown completion 'pmf2'"),
        ({"bootstrap": 5, "chunk_entries": 10}, "chunk_entries: bootstrap draws are made by chunks of the usual size"),
        ({"bootstrap": -1}, "bootstrap: found -1, expected a whole number of at least 0"),
    ],
)
def test_fields_that_do_not_fit_are_refused(step: dict[str, Any], said: str, ratings: Path) -> None:
    rank = {"do": "rank", "model": "borda", "dataset": "movies", **step}
    with pytest.raises(UsageError, match=said):
        make_job({"name": "bad", "steps": {"movies": IMPORT, "top": rank}})
