"""Scheduled runs: what did not change is taken over, with the bytes of a full run, and the rest says why not."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from small_jobs import fingerprints

from distagg.cli.main import main
from distagg.dataset import write_dataset
from distagg.dataset.dataset import Dataset
from distagg.dataset.frames import TableSource
from distagg.engine.rank_incremental import block_digests
from distagg.errors import InputError
from distagg.pipeline.folder import RunFolder
from distagg.pipeline.previous import changes_since
from distagg.pipeline.status import job_of, status

QUERIES, CHUNK = 40, 150
Lists = dict[str, list[list[int]]]  # query -> items of every expert's list, best first


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lists(queries: int = QUERIES) -> Lists:
    draw = random.Random(5)
    return {f"q{n}": [draw.sample(range(8), 6) for _ in range(4)] for n in range(queries)}


def write(found: Lists, **source: Any) -> None:
    """The dataset ``data``, about one block for five queries; even items are relevant."""
    rows = [
        (query, f"e{e}", f"i{item}", place, 1 - item % 2)
        for query, several in found.items()
        for e, items in enumerate(several)
        for place, item in enumerate(items, start=1)
    ]
    names = ("query", "expert", "item", "rank", "label")
    table = pa.table({name: [row[n] for row in rows] for n, name in enumerate(names)})
    shutil.rmtree("data", ignore_errors=True)
    write_dataset(TableSource(table), Path("data"), block_entries=CHUNK)


def job(model: str = "rrf", fmt: str = "parquet", **more: Any) -> str:
    steps = {
        "ranked": {"do": "rank", "model": model, "dataset": "data", "chunk_entries": 2 * CHUNK, "format": fmt},
        "checked": {"do": "evaluate", "rankings": "ranked", "dataset": "data", "metrics": ["map"]},
    }
    Path("job.json").write_text(json.dumps({"name": "nightly", "steps": {**more.pop("steps", {}), **steps}, **more}))
    return "job.json"


def run(file: str, *overrides: str) -> Path:
    assert main(["run", file, *overrides]) == 0
    return Path("runs/nightly/latest").resolve()


def full(file: str, *overrides: str) -> Path:
    """The same in a directory of its own, where nothing is taken over."""
    shutil.rmtree("alone", ignore_errors=True)
    assert main(["run", file, "-o", "alone", *overrides]) == 0
    return Path("alone")


def events(run: Path, event: str) -> list[dict[str, Any]]:
    return [one for one in RunFolder(run).events() if one["event"] == event]


def check(now: Path, file: str, *overrides: str) -> tuple[int, list[str]]:
    """Parts reused, and the reasons of the others; the bytes are those of a full run."""
    assert fingerprints(now) == fingerprints(full(file, *overrides))
    (counted,) = events(now, "parts reused")
    anew = [one["why"] for one in events(now, "part anew")]
    assert counted["count"] + len(anew) == counted["of"]
    return counted["count"], anew


@pytest.mark.parametrize("fmt", ["parquet", "csv", "trec"])
def test_only_the_part_whose_block_changed_is_ranked_again(fmt: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = lists()
    write(found)
    first = run(job(fmt=fmt))
    found["q13"][0].reverse()
    write(found)
    second = run(job(fmt=fmt))
    assert second != first
    reused, anew = check(second, job(fmt=fmt))
    assert reused > 2
    assert len(anew) == 1
    assert anew[0].startswith("input block ")
    assert anew[0].endswith(" changed")
    ranked = status(second)["steps"][0]
    assert ranked["reused"] == f"{reused} of {reused + 1} parts"
    assert ranked["why"] == "input blocks changed (1 parts)"
    html = (second / "report.html").read_text()
    assert "input block" in html
    changes = json.loads((second / "changes.json").read_text())
    assert changes["before"] == first.name
    assert changes["rankings"]["ranked"]["queries"] == {"same": QUERIES - 1, "changed": 1, "new": 0, "vanished": 0}
    assert {one["query"] for one in changes["rankings"]["ranked"]["movers"]} == {"q13"}
    assert (
        changes["metrics"]["checked"]["ranked"]["map"]["before"]
        != changes["metrics"]["checked"]["ranked"]["map"]["now"]
    )
    assert f"ranked, since {first.name}" in html
    assert "ranks of moved items" in html
    assert "ranked changed in 1 of 40 queries" in capsys.readouterr().err
    same = {(first / file).stat().st_ino for file in fingerprints(first)}
    if fmt == "parquet":  # links, not copies
        assert sum((second / file).stat().st_ino in same for file in fingerprints(second)) == reused


def test_queries_at_the_end_are_new_blocks_and_those_in_front_move_nothing() -> None:
    write(lists())
    run(job())
    write(lists(QUERIES + 6))
    reused, anew = check(run(job()), job())
    assert reused > 2
    assert any("new" in why for why in anew)
    (first, *others) = Dataset.open("data").plan(2 * CHUNK)
    gone = sum(block.queries for block in first.blocks)
    write({query: said for n, (query, said) in enumerate(lists(QUERIES + 6).items()) if n >= gone})
    assert check(run(job()), job()) == (len(others), [])


def test_where_queries_stand_counts_for_models_that_draw() -> None:
    found = lists()
    write(found)
    (first, second, *_) = Dataset.open("data").plan(2 * CHUNK)
    gone = sum(block.queries for block in first.blocks)
    digests = {placed: block_digests(("data", "lists", second.blocks, placed)) for placed in (False, True)}
    write({query: said for n, (query, said) in enumerate(found.items()) if n >= gone})
    moved = Dataset.open("data").plan(2 * CHUNK)[0]
    assert block_digests(("data", "lists", moved.blocks, False)) == digests[False]
    assert not set(block_digests(("data", "lists", moved.blocks, True))) & set(digests[True])


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("steps.ranked.settings={c=7}", "the model's settings changed (c)"),
        (
            "steps.ranked.model=borda",
            "another model (was rrf, is borda); the model's settings changed (c, discount, unlisted)",
        ),
        ("seed=3", "another seed (was 0, is 3)"),
        ("steps.ranked.chunk_entries=300000", "the same input blocks, in other parts"),
    ],
)
def test_what_concerns_all_parts_ranks_all_again_and_says_so(override: str, why: str) -> None:
    write(lists())
    run(job())
    reused, anew = check(run(job(), override), job(), override)
    assert reused == 0
    assert set(anew) == {why}


def test_other_code_ranks_all_again(monkeypatch: pytest.MonkeyPatch) -> None:
    write(lists())
    first = run(job())
    monkeypatch.setattr("distagg.pipeline.folder.source_hash", lambda: "other")
    second = run(job())
    assert second != first
    assert {one["why"] for one in events(second, "part anew")} == {"the code changed (source)"}
    assert events(second, "step")[0]["why"][0].startswith("code.source: was ")


def fit() -> dict[str, Any]:
    return {"model": {"do": "fit", "model": "bestinput", "dataset": "data"}}


def test_steps_are_taken_over_whole_and_a_changed_input_trains_again() -> None:
    right, wrong = [0, 2, 4, 6, 1, 3], [1, 3, 5, 7, 0, 2]
    write({query: [right, wrong, *said[2:]] for query, said in lists().items()})
    first = run(job("model", steps=fit()))
    second = run(job("model", steps=fit()), "steps.checked.metrics=['p@3']")
    assert [one["step"] for one in events(second, "step reused")] == ["model", "ranked"]
    (done,) = events(second, "step")
    assert done["why"][0].startswith("step.metrics: was ['map'], is ['p@3']")
    assert fingerprints(second) == fingerprints(full(job("model", steps=fit()), "steps.checked.metrics=['p@3']"))
    assert [step["state"] for step in status(second)["steps"]] == ["done"] * 3
    write({query: [wrong, right, *said[2:]] for query, said in lists().items()})
    third = run(job("model", steps=fit()))
    assert events(third, "step reused") == []
    assert "inputs" in events(third, "step")[0]["why"][0]
    assert {one["why"] for one in events(third, "part anew")} == {"the model was fitted again"}
    (moved,) = json.loads((third / "changes.json").read_text())["models"]["model"]["arrays"].values()
    assert {one["expert"] for one in moved["experts"]} >= {"e0", "e1"}
    assert "Experts of model, since" in (third / "report.html").read_text()
    assert fingerprints(third) == fingerprints(full(job("model", steps=fit())))
    assert first not in (second, third)


def test_an_import_of_the_same_files_is_taken_over() -> None:
    Path("a.run").write_text("1 Q0 x 1 3.0 a\n1 Q0 y 2 2.0 a\n")
    Path("qrels").write_text("1 0 y 1\n")
    steps = {
        "data": {"do": "import", "source": "trec", "files": ["a.run"], "qrels": "qrels"},
        "ranked": {"do": "rank", "model": "rrf", "dataset": "data"},
    }
    Path("job.json").write_text(json.dumps({"name": "nightly", "steps": steps}))
    first = run("job.json")
    second = run("job.json", "steps.ranked.model=borda")
    assert [one["step"] for one in events(second, "step reused")] == ["data"]
    assert Dataset.open(second / "output" / "data").manifest == Dataset.open(first / "output" / "data").manifest
    Path("a.run").write_text("1 Q0 x 1 3.0 a\n1 Q0 z 2 2.0 a\n")
    third = run("job.json")
    assert events(third, "step reused") == []
    assert any("a.run" in line for line in events(third, "step")[0]["why"])


def test_what_is_damaged_in_the_run_before_is_not_taken_over() -> None:
    found = lists()
    write(found)
    first = run(job())
    part = first / "output" / "ranked" / "part-00001.parquet"
    part.write_bytes(part.read_bytes()[:50])
    found["q38"][0].reverse()
    write(found)
    _, anew = check(run(job()), job())
    assert anew[0] == "the earlier part is damaged"
    second = Path("runs/nightly/latest").resolve()
    assert (second / "output" / "checked.json").is_file()
    result = second / "output" / "checked.json"
    result.write_bytes(result.read_bytes() + b" ")
    third = run(job(), "steps.more.do=rank", "steps.more.model=borda", "steps.more.dataset=data")
    whys = {one["step"]: one.get("why") for one in events(third, "step")}
    assert whys == {
        "checked": ["its output in the previous run is damaged"],
        "more": ["the previous run had no such step"],
    }


@pytest.mark.parametrize("damage", [b"{", b"[]", b'{"files": null}', b""])
def test_a_damaged_manifest_of_the_run_before_is_told(damage: bytes) -> None:
    found = lists()
    write(found)
    first = run(job())
    (first / "output" / "ranked" / "_manifest.json").write_bytes(damage)
    (first / "keys" / "checked.json").write_bytes(damage)
    found["q13"][0].reverse()
    write(found)
    second = run(job())
    check(second, job())
    changes = json.loads((second / "changes.json").read_text())
    assert "_manifest.json: found " in changes["unknown"]["ranked"]
    assert changes["metrics"]["checked"]["ranked"]["map"]["now"] > 0.0


def test_a_damaged_manifest_of_this_run_is_refused() -> None:
    write(lists())
    first = RunFolder(run(job()))
    (first.path / "output" / "ranked" / "_manifest.json").write_bytes(b"{")
    with pytest.raises(InputError, match=r"_manifest\.json: found an unreadable file .* makes it again"):
        changes_since(first, first, job_of(first))


def test_a_run_that_stopped_takes_over_from_the_same_run_when_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = lists()
    write(found)
    first = run(job())
    found["q13"][0].reverse()
    write(found)

    def stop(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("distagg.engine.rank_resumable._publish", stop)
        assert main(["run", job()]) == 130
    (stopped,) = [run for run in Path("runs/nightly").iterdir() if run.name not in ("latest", first.name)]
    assert main(["resume", str(stopped)]) == 0
    assert Path("runs/nightly/latest").resolve() == stopped.resolve()
    assert RunFolder(stopped).read("before.json") == {"run": first.name}
    assert fingerprints(stopped) == fingerprints(full(job()))
    assert (stopped / "changes.json").is_file()
