"""Bad jobs are refused with the field's name, and nothing is written."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from small_jobs import ranking_job

from distagg.cli.main import main
from distagg.errors import UsageError
from distagg.pipeline.fields import CHECKPOINTS, PLACE, STEPS, TOP, json_schema
from distagg.pipeline.spec import make_job, read_job

WRONG: dict[str, list[Any]] = {
    "name": ["", "a/b", 3], "text": [7, ""], "whole": [-1, 1.5, "many", True, 10**400],
    "number": [-1, "soon", float("nan"), float("inf")],
    "table": [5, "x"], "settings": [5, "x"], "columns": [5, "x"], "interval": [5, "1", [1, 2, 3], "a,b"],
    "choice": ["nonsense", 3], "paths": [[], "A1.txt", ["/no/such/file"], [3]],
    "path": ["/no/such/file", 3], "dataset": ["nowhere", 3, "later"], "model": ["bordo", 3],
    "ranker": ["bordo", "data", "crf"], "rankings": ["nowhere", "data"], "metrics": [[], ["ndgc@5"], "map"],
    "metric": ["ndgc@5"], "folds": [2, "letor", True], "models": [[], ["bordo"], ["rrf", "rrf"]],
    "counts": [[], 3, [0], [1.5, 2], ["two"], [2, 2]], "flag": [1, "yes"],
    "size": ["much", "1MB", 4],
}  # fmt: skip


def every_step(small: Path, source: Path) -> dict[str, Any]:
    """A job with every kind of step and every field, all right."""
    return {
        "name": "all", "runs": "runs", "keep": 3, "seed": 1, "place": {"workers": 0},
        "checkpoints": {"rounds": 5, "seconds": 1.5},
        "steps": {
            "data": {"do": "import", "source": "trec", "files": [str(source)], "qrels": str(source), "expert": "file",
                     "by": "score"},
            "wide": {"do": "expand", "dataset": "data", "experts": 2, "items": 1},
            "model": {"do": "fit", "model": "rrf", "dataset": str(small), "valid": str(small),
                      "settings": {"c": [10, 60]}, "tries": 2, "goal": "map", "protocol": "letor"},
            "chosen": {"do": "fit", "model": "rrf", "dataset": str(small), "folds": 5, "settings": {"c": [10, 60]}},
            "tuned": {"do": "tune", "dataset": str(small), "models": ["rrf"], "folds": "letor5", "goal": "ndcg@5",
                      "metrics": ["map"], "beside": ["bestinput"], "product": "json", "protocol": "letor"},
            "ranked": {"do": "rank", "model": "borda", "dataset": "wide", "settings": {}, "format": "csv",
                       "chunk_entries": 100, "allow_unseen": True},
            "checked": {"do": "evaluate", "rankings": "ranked", "dataset": str(small), "metrics": ["map"],
                        "protocol": "trec"},
            "compared": {"do": "compare", "dataset": str(small), "models": ["rrf", "borda"], "folds": "letor5",
                         "settings": {"rrf": {"c": 5}}, "tries": 1, "baseline": "rrf", "metrics": ["map"],
                         "goal": "map", "protocol": "letor"},
            "scaled": {"do": "scale", "dataset": str(small), "queries": 10, "model": "borda", "workers": [1, 2],
                       "grow": 2, "times": [1], "chunks": [100], "repeats": 1, "simulated": [3],
                       "simulated_entries": 1000, "simulated_chunks": [100]},
            "votes": {"do": "import", "source": "pairs", "files": [str(source)]},
            "standings": {"do": "board", "dataset": "votes", "anchor": "a:1200", "level": 0.9, "by": "month"},
            "later": {"do": "import", "source": "letor", "files": [str(source)]},
            "lists": {"do": "import", "source": "rankings", "files": [str(source.parent / "*")], "qrels": str(source),
                      "columns": {"site": "item"}},
        },
    }  # fmt: skip


def cases() -> list[tuple[str, Any]]:
    """Every field with every wrong value of its kind."""
    found = [(name, value) for name, field in TOP.items() for value in WRONG[field.kind]]
    found += [(f"place.{name}", value) for name, field in PLACE.items() for value in WRONG[field.kind]]
    found += [(f"checkpoints.{name}", value) for name, field in CHECKPOINTS.items() for value in WRONG[field.kind]]
    homes = {"import": "data", "expand": "wide", "fit": "model", "tune": "tuned", "rank": "ranked",
             "evaluate": "checked",
             "compare": "compared", "scale": "scaled", "board": "standings"}  # fmt: skip
    for do, step in homes.items():
        found += [(f"steps.{step}.{name}", value) for name, f in STEPS[do].items() for value in WRONG[f.kind]]
        found += [(f"steps.{step}.do", value) for value in ("rankk", 3, [], {})]
    more = {"keep": 0, "steps.scaled.workers": [1, 4], "steps.scaled.model": "crf",
            "steps.chosen.folds": 2, "steps.model.settings": {"k": 3}, "steps.ranked.settings": {"c": 3},
            "steps.compared.settings": {"mc4": {}}, "steps.tuned.models": ["median"], "steps.compared.baseline": "mc4",
            "steps.compared.settings.rrf": {"c": -1}, "steps.lists.files": ["*.nothing"], "steps.lists.by": "score",
            "steps.data.columns": {"site": "item"}, "steps.data.scale": "1,5", "steps.checked.where": "age < 3",
            "steps.checked.completion": {"rank": 2}, "steps.ranked.complete": "pmff",
            "steps.standings.model": "rrf"}  # fmt: skip
    return found + list(more.items())


def put(body: dict[str, Any], key: str, value: Any) -> None:
    *above, last = key.split(".")
    for word in above:
        body = body[word]
    body[last] = value


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("source") / "a.run"
    file.write_text("7 Q0 x 1 9.5 bm25\n")
    return file


def test_the_whole_job_is_right(small: Path, source: Path) -> None:
    job = make_job(every_step(small, source))
    assert [step.name for step in job.steps][:2] == ["data", "wide"]
    assert make_job(json.loads(json.dumps(job.to_dict()))) == job  # what a run directory keeps is read again
    assert job.steps[-1].values["files"] == [str(source)]  # the pattern's file, whose content the run depends on


@pytest.mark.parametrize(("key", "value"), cases(), ids=lambda v: str(v) if isinstance(v, str) else repr(v))
def test_every_wrong_field_is_named_and_nothing_is_written(
    key: str,
    value: Any,
    small: Path,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    body = copy.deepcopy(every_step(small, source))
    put(body, key, value)
    file = tmp_path / "job.json"
    file.write_text(json.dumps(body))
    assert main(["run", str(file)]) == 2
    said = capsys.readouterr().err
    assert re.search(rf"(?<![\w.]){re.escape(key)}[:.']", said), said
    assert [entry.name for entry in tmp_path.iterdir()] == ["job.json"]


@pytest.mark.parametrize("key", ["nmae", "place.worker", "checkpoints.round", "steps.ranked.modle", "steps.data.file"])
def test_unknown_keys_come_with_a_suggestion(key: str, small: Path, source: Path) -> None:
    body = every_step(small, source)
    put(body, key, 1)
    with pytest.raises(UsageError, match=f"'{key}'.*did you mean '"):
        make_job(body)


@pytest.mark.parametrize("key", ["name", "steps", "steps.data.source", "steps.ranked.model", "steps.compared.models",
                                 "steps.data.do", "steps.checked.rankings"])  # fmt: skip
def test_missing_fields_are_named(key: str, small: Path, source: Path) -> None:
    body = every_step(small, source)
    inner = body
    *above, last = key.split(".")
    for word in above:
        inner = inner[word]
    del inner[last]
    with pytest.raises(UsageError, match=f"{key}.*missing"):
        make_job(body)


def test_overrides(small: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f'name = "a"\n[steps.ranked]\ndo = "rank"\nmodel = "rrf"\ndataset = "{small}"\n')
    job = read_job(file, ["steps.ranked.model=borda", "place.workers=3", 'steps.ranked.settings={unlisted="ignore"}'])
    assert (job.steps[0].values["model"], job.place) == ("borda", {"workers": 3})
    for wrong in ("steps", "=3", "name.x=3", "steps.ranked.model.x=3"):
        with pytest.raises(UsageError):
            read_job(file, [wrong])


def test_the_schema_knows_every_field(small: Path, source: Path) -> None:
    schema = json_schema()
    assert set(schema["properties"]) == set(TOP)
    kinds = {one["title"]: one for one in schema["properties"]["steps"]["additionalProperties"]["oneOf"]}
    for step in every_step(small, source)["steps"].values():
        assert set(step) <= set(kinds[step["do"]]["properties"])
    assert ranking_job(small)["steps"]["ranked"].keys() <= kinds["rank"]["properties"].keys()


@pytest.mark.parametrize("text", ["name = ", "[[[", "name", f"x = {'[' * 5000}"])
def test_no_toml(text: str, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(text)
    assert main(["run", str(file)]) == 2
    assert main(["run", str(tmp_path / "none.toml")]) == 2
