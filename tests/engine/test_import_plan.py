"""Imports on paper: what a rehearsal takes from a part of the files, and what follows for all of them."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine import import_plan as module
from distagg.engine.import_parallel import import_in_pieces, staging_of
from distagg.engine.import_plan import Rehearsal, plan_import, rehearse, simulated_task_seconds
from distagg.engine.runner import InlineRunner
from distagg.engine.scaling import throughput
from distagg.errors import InputError
from distagg.sources.trec import TrecSource


def runs(folder: Path, queries: int = 60, packed: bool = False) -> list[Path]:
    """Six runs; the fourth names its queries in another order, so that its pieces are sorted once more."""
    folder.mkdir(exist_ok=True)
    draws, files = random.Random(4), []
    for e in range(6):
        order = [(q - 1 ^ (e == 3)) + 1 for q in range(1, queries + 1)]  # 2, 1, 4, 3, ...
        lines = (f"{q} Q0 doc-{draws.randrange(10**6):06d}-{i} {i} {40 - i}.5 t\n" for q in order for i in range(20))
        text = "".join(lines).encode()
        files.append(folder / (f"run{e}.gz" if packed else f"run{e}"))
        files[-1].write_bytes(gzip.compress(text) if packed else text)
    return files


def table(folder: Path, form: str) -> list[Path]:
    draws, folder = random.Random(5), folder / form
    folder.mkdir()
    rows = {"query": [], "expert": [], "item": [], "rank": []}
    for q in range(80):
        for e in range(5):
            for i in range(12):
                for name, value in zip(rows, (f"q{q}", f"e{e}", f"x{draws.randrange(10**6)}-{i}", i + 1), strict=True):
                    rows[name].append(value)
    file = folder / f"lists.{form}"
    if form == "parquet":
        pq.write_table(pa.table(rows), file, row_group_size=500)
    else:
        lines = zip(*rows.values(), strict=True)
        file.write_text("".join(",".join(map(str, line)) + "\n" for line in [tuple(rows), *lines]))
    return [file]


MADE: dict[str, tuple[str, Callable[[Path], list[Path]], int]] = {
    "runs": ("trec", lambda folder: runs(folder / "runs"), 7200),
    "gzipped runs": ("trec", lambda folder: runs(folder / "packed", packed=True), 7200),
    "lists.csv": ("rankings", lambda folder: table(folder, "csv"), 4800),
    "lists.parquet": ("rankings", lambda folder: table(folder, "parquet"), 4800),
}


@pytest.mark.parametrize("case", MADE)
def test_the_rows_of_all_files_follow_from_the_first_lines_of_some(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, make, rows = MADE[case]
    files = make(tmp_path)
    monkeypatch.setattr(module, "HEAD_BYTES", 16_000)
    known = rehearse(kind, files)
    assert known.rows < rows / 2
    text = sum(file.stat().st_size for file in files)
    assert plan_import(known, text=text)["rows"] == pytest.approx(rows, rel=0.05)


class Counted(InlineRunner):
    """Counts tasks, and the bytes of runs in the staging folder before the files are merged."""

    def __init__(self, staging: Path) -> None:
        self.staging, self.tasks, self.runs = staging, {}, 0

    def each(self, function: Any, payloads: Sequence[Any], progress: Any = None) -> Iterator[Any]:
        self.tasks[function.__name__] = len(payloads)
        if function.__name__ == "_merge_task":
            self.runs = sum(file.stat().st_size for file in self.staging.glob("piece-*"))
        return map(function, payloads)


def test_tasks_bytes_and_files_are_those_of_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HEAD_BYTES": 16_000, "BLOCK_ENTRIES": 500, "FILE_BLOCKS": 2}.items():
        monkeypatch.setattr(module, name, value)
    for name in ("writer", "join_names"):
        monkeypatch.setattr(f"distagg.dataset.build.{name}.FILE_BLOCKS", 2)
    files, target = runs(tmp_path / "runs"), tmp_path / "data"
    source = TrecSource(files)
    counted = Counted(staging_of(target, b""))
    import_in_pieces(source, target, counted, piece_bytes=10_000, block_entries=500)
    known, pieces = rehearse("trec", files), source.split(10_000)
    plan = plan_import(known, text=sum(file.stat().st_size for file in files), pieces=len(pieces))
    tasks = {row["round"]: row["tasks"] for row in plan["rounds"]}
    assert tasks["read"] == counted.tasks["_read_task"] > 12
    assert tasks["merge"] == pytest.approx(counted.tasks["_merge_task"], abs=1)
    assert 0 < tasks["sort"] < tasks["read"]  # one of the rehearsed files, and one of all
    assert plan["rounds"][2]["read"] == pytest.approx(counted.runs, rel=0.25)  # small pieces have larger indexes
    assert plan["files"] == pytest.approx(len(Dataset.open(target).manifest.files) + 2, abs=2)  # manifest, marker


ROUND = Rehearsal(
    rows=1000, text=50_000.0, pieces=2, sorted=0, seconds={"read": 1e-4, "sort": 0.0, "merge": 2e-4}, runs=40_000,
    indexes=1000, dataset=9000, names=1, new=0.5, join_seconds=1e-4,
)  # fmt: skip


def test_time_follows_the_scalability_law() -> None:
    def plan(workers: int, **more: Any) -> dict[str, Any]:
        return plan_import(ROUND, text=0.0, rows=1e10, workers=workers, **more)

    one, many = plan(1), plan(100)
    read = one["rounds"][0]
    assert read["tasks"] == -(-500_000_000_000 // module.PIECE_BYTES)
    assert read["seconds"] == pytest.approx(1e10 * 1e-4 / 1000)
    assert read["tasks"] * read["seconds_of_a_task"] == pytest.approx(1e10 * 1e-4 / 1000)
    each, serial = read["seconds_of_a_task"], module.TASK_SECONDS
    law = float(throughput(100.0, 1 / each, serial / each, 0.0))  # type: ignore[arg-type]
    assert many["rounds"][0]["seconds"] == pytest.approx(-(-read["tasks"] // 100) * 100 / law)
    assert one["bottleneck"] == "merging (workers)"
    assert plan(100_000)["bottleneck"] == "handing out tasks (scheduler and driver)"
    assert plan(100_000, seconds_of_task=1e-9)["bottleneck"] == "joining names (driver)"
    slow = plan(100, bandwidth=1e9)
    assert slow["bottleneck"] == "reading and writing (storage)"
    moved = sum(row["read"] + row["written"] for row in slow["rounds"])
    assert slow["seconds"] == pytest.approx(moved / 1e9, rel=1e-2)
    assert one["exchanged"] == 2 * 41_000 * 10**7
    assert one["memory_of_the_driver"] > plan_import(ROUND, text=5e4)["memory_of_the_driver"]


def test_what_cannot_be_rehearsed(tmp_path: Path) -> None:
    (tmp_path / "bad.run").write_text("q Q0 d one 1.5 t\n" * 3)
    (tmp_path / "empty.run").write_text("")
    with pytest.raises(InputError, match="long first line"):
        rehearse("trec", [tmp_path / "empty.run"])
    (tmp_path / "bad.run").write_text("nonsense\n")
    with pytest.raises(InputError, match="6 fields"):
        rehearse("trec", [tmp_path / "bad.run"])


def test_plans_of_jobs_and_of_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [str(file) for file in runs(tmp_path / "runs")]
    steps = {
        "data": {"do": "import", "source": "trec", "files": files},
        "fused": {"do": "rank", "model": "rrf", "dataset": "data"},
    }
    (tmp_path / "job.json").write_text(json.dumps({"name": "fusion", "steps": steps}))
    assert main(["plan", "job.json", "--json", "--rows", "1e9", "--workers", "10"]) == 0
    data, fused = json.loads(capsys.readouterr().out)
    assert data["import"]["workers"] == 10
    assert data["import"]["rows"] == data["entries"] == fused["entries"] == 10**9
    assert main(["plan", "job.json"]) == 0
    said = capsys.readouterr()
    assert "data   import    7,200" in said.out
    assert "bottleneck" in said.out
    assert "nothing was written" in said.err
    monkeypatch.setattr("distagg.cli.jobs.rehearse_made_up", lambda: ROUND)
    assert main(["plan", "--rows", "1e11", "--workers", "1000", "--bandwidth", "20GB"]) == 0
    assert "reading and writing (storage)" in capsys.readouterr().out
    for words in (["--rows", "0"], ["--rows", "5", "--bandwidth", "wide"], []):
        assert main(["plan", *words]) == 2
    assert not list(tmp_path.glob("runs/fusion*"))


def test_made_up_runs_are_runs() -> None:
    known = module.rehearse_made_up()
    assert known.rows == 4 * 80 * 1000
    assert known.sorted == 0
    assert 40 < known.text / known.rows < 60


@pytest.mark.cluster
def test_scheduler_and_driver_are_measured_on_simulated_workers() -> None:
    assert 0 < simulated_task_seconds(3) < 1
