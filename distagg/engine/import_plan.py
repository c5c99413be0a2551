"""An import on paper: tasks, bytes, files, memory and time, for any number of rows and workers.

The import is rehearsed: the first lines of some of its files go through all rounds of ``import_parallel`` in this
process, which gives the processor seconds and the bytes of a row in each round. Rows, text and names then grow in
proportion. The time of a round follows from the scalability law (``scaling.throughput``): n workers do n tasks at once,
but scheduler and driver handle all tasks one after the other, and their time for a task is the serial share of it.
``simulated_task_seconds`` measures this time on a simulated cluster of any size.

What the storage can deliver is not known here. The plan says how many bytes a second it has to deliver if it shall not
slow the workers down; given its bandwidth, the plan says how long it takes.
"""

from __future__ import annotations

import math
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from distagg.dataset.build.pieces import INDEX_SUFFIX, PieceIndex
from distagg.dataset.build.regroup import MEMORY_BYTES
from distagg.dataset.build.writer import BLOCK_ENTRIES, FILE_BLOCKS
from distagg.engine.import_parallel import PIECE_BYTES, import_in_pieces
from distagg.engine.importing import source_files, source_of
from distagg.engine.runner import InlineRunner
from distagg.engine.scaling import crowd, task_seconds, throughput
from distagg.engine.worker_memory import PROCESS_BYTES
from distagg.errors import InputError
from distagg.sources.source import open_bytes
from distagg.storage.paths import Place, size_of

TURNS = 3  # of a rehearsal, of which the fastest counts: the first one compiles
HEAD_FILES, HEAD_BYTES = 4, 4 << 20  # of a rehearsal: some 300,000 rows
TASK_SECONDS = 1.5e-3  # of scheduler and driver for a task, simulated with 1,000 workers (jobs/bench/import_cluster.py)
FIRST_SECONDS = 0.35  # until workers have loaded what their first task needs
NAME_SECONDS = 0.5e-6  # of the driver for a name that a piece has beyond those of the rehearsed pieces
NAME_BYTES, NEW_NAME_BYTES = 40, 170  # of the driver: for a name in the index of a piece; more if it is a new one
MADE_UP_FILES = 100
MOST_SIMULATED = 1000  # workers
ROUNDS = {"_read_task": "read", "_sort_task": "sort", "_merge_task": "merge"}
DEPTH = 1000  # of made-up lists
PARQUET = (".parquet", ".pq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What the rounds of a small import took: processor seconds, and bytes."""

    rows: int
    text: float  # bytes of the source's files that have these rows
    pieces: int
    sorted: int  # pieces that are sorted once more
    seconds: dict[str, float]  # by round, on one worker
    runs: int  # bytes of sorted runs, and of the indexes of pieces
    indexes: int
    dataset: int  # bytes of its files
    names: int  # in the indexes of pieces
    new: float  # the share of names that no file before had
    join_seconds: float  # of the driver, for joining them


@dataclass(slots=True)
class _Timed(InlineRunner):
    """Runs tasks here and notes what each round takes, and what the driver takes between the tasks of a round."""

    staging: Path
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROUNDS.values(), 0.0))
    tasks: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROUNDS.values(), 0))
    between: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROUNDS.values(), 0.0))
    runs: int = 0
    indexes: int = 0
    names: int = 0
    new: float = 1.0

    def each(self, function: Any, payloads: Sequence[Any], progress: Any = None) -> Iterator[Any]:
        name = ROUNDS.get(function.__name__)
        if name is None:
            yield from map(function, payloads)
            return
        for payload in payloads:
            began = time.process_time()
            value = function(payload)
            ended = time.process_time()
            self.seconds[name] += ended - began
            self.tasks[name] += 1
            if name == "read":
                self._look()
            began = time.process_time()
            yield value
            self.between[name] += time.process_time() - began

    def _look(self) -> None:
        """Note what the pieces that are read so far have written."""
        files = list(self.staging.glob(f"*{INDEX_SUFFIX}"))
        indexes = [PieceIndex.read(file) for file in files]
        self.names = sum(len(each.queries) + len(each.experts) + len(each.items) for each in indexes)
        self.indexes = sum(file.stat().st_size for file in files)
        self.runs = sum(run.bytes for each in indexes for run in each.runs)
        if len(indexes) > 1:
            known = [set(each.queries.to_pylist()) for each in indexes]
            again = sum(len(one & known[0]) for one in known[1:])
            self.new = 1.0 - again / max(sum(map(len, known[1:])), 1)


def rehearse(kind: str | None, sources: Any, options: Mapping[str, Any] | None = None) -> Rehearsal:
    """Import the first lines of some files, here and for nothing; without judgements, which are few."""
    given = {name: value for name, value in (options or {}).items() if name != "qrels"}
    files = source_files(sources, given.get("columns"))
    with tempfile.TemporaryDirectory(prefix="distagg-plan-") as folder:
        where = Path(folder)
        heads, text = _heads(files, where / "heads")
        runs = []
        for turn in range(TURNS):
            opened = source_of(kind, heads, dict(given))
            target = where / f"turn{turn}"
            timed = _Timed(staging=where / f".{target.name}.importing")
            manifest = import_in_pieces(opened.source, target, timed, piece_bytes=HEAD_BYTES + 1)
            runs.append((timed, manifest, sum(file.stat().st_size for file in target.iterdir())))
    timed, manifest, dataset = runs[-1]
    seconds = {name: min(one.seconds[name] for one, *_ in runs) for name in ROUNDS.values()}
    return Rehearsal(
        rows=manifest.entries,
        text=text,
        pieces=timed.tasks["read"],
        sorted=timed.tasks["sort"],
        seconds=seconds,
        runs=timed.runs,
        indexes=timed.indexes,
        dataset=dataset,
        names=timed.names,
        new=timed.new + (1.0 - timed.new) / len(files),
        join_seconds=min(one.between["read"] for one, *_ in runs),
    )


def _heads(files: Sequence[Place], folder: Path) -> tuple[list[Place], float]:
    """The first lines of files from all over the source as files, and how many bytes of the source these are."""
    chosen = [files[n] for n in sorted({*np.linspace(0, len(files) - 1, HEAD_FILES).astype(int).tolist()})]
    heads: list[Place] = []
    total = 0.0
    for number, file in enumerate(chosen):
        target = folder / str(number) / file.parent.name / file.name.removesuffix(".gz")
        target.parent.mkdir(parents=True)
        total += _parquet_head(file, target) if file.suffix in PARQUET else _text_head(file, target)
        heads.append(target)
    return heads, total


def _text_head(file: Place, target: Path) -> float:
    if file.suffix == ".gz":
        with file.open("rb") as raw:
            packed = raw.read(HEAD_BYTES // 4)
        unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
        text = unpacking.decompress(packed, HEAD_BYTES)
        taken = float(len(packed) - len(unpacking.unconsumed_tail) - len(unpacking.unused_data))
    else:
        with open_bytes(file) as stream:
            text = stream.read(HEAD_BYTES)
        taken = float(len(text))
    lines = text if len(text) < HEAD_BYTES else text[: text.rfind(b"\n") + 1]
    if not lines:
        raise InputError(str(file), found="a long first line", expected="lines, of which some can be tried")
    target.write_bytes(lines)
    return taken * len(lines) / len(text)


def _parquet_head(file: Place, target: Path) -> float:
    import pyarrow.parquet as pq  # late: text files do without it

    with file.open("rb") as raw:
        whole = pq.ParquetFile(raw)
        rows = whole.metadata.num_rows
        wanted = max(1, round(rows * min(1.0, HEAD_BYTES / max(size_of(file), 1))))
        batch = next(whole.iter_batches(batch_size=wanted), None)
    if batch is None:
        raise InputError(str(file), found="no rows", expected="at least one")
    with pq.ParquetWriter(target, batch.schema) as writer:
        writer.write_batch(batch)
    return size_of(file) * batch.num_rows / rows


def rehearse_made_up() -> Rehearsal:
    """As ``rehearse``, with TREC runs whose lists have 1,000 documents: for a plan without files."""
    with tempfile.TemporaryDirectory(prefix="distagg-plan-") as folder:
        return replace(rehearse("trec", write_made_up_runs(Path(folder))), new=1.0 / MADE_UP_FILES)


def write_made_up_runs(folder: Path, queries: int = 80) -> list[Path]:
    """Write TREC runs with lists of 1,000 documents."""
    files = []
    for run in range(HEAD_FILES):
        rows = (
            f"{query} Q0 clueweb12-{(place * 7919 + run) % 10_000:04d}wb-{query % 100:02d}-{place:05d} {place + 1} "
            f"{30 - place / 100:.4f} run{run:03d}\n"
            for query in range(1, queries + 1)
            for place in range(DEPTH)
        )
        files.append(folder / f"input.run{run:03d}")
        files[-1].write_text("".join(rows))
    return files


def simulated_task_seconds(workers: int, tasks: int = 3) -> float:
    """Seconds of scheduler and driver for a task, with so many simulated workers (at most 1,000) and tasks for each."""
    with crowd(min(workers, MOST_SIMULATED)) as runner:
        return task_seconds(runner, tasks * min(workers, MOST_SIMULATED))


def plan_import(
    known: Rehearsal,
    *,
    text: float,
    rows: float | None = None,
    pieces: int | None = None,
    workers: int = 1,
    bandwidth: float | None = None,
    seconds_of_task: float = TASK_SECONDS,
) -> dict[str, Any]:
    """What an import of ``text`` bytes, or of so many rows, takes on workers; times in seconds, sizes in bytes.

    Time is that of the rounds, without the start of a cluster. ``busy`` has the seconds of each resource, the largest
    of which is the bottleneck; ``storage_a_second`` is what the storage must deliver for these times.

    Parameters
    ----------
    known
        What a part of it took.
    text
        Bytes of the source's files.
    rows
        Plan for this many rows of the same kind, instead of those that the text has.
    pieces
        Pieces of the source, if they are known; else they follow from the text.
    workers
        Worker processes with one thread each.
    bandwidth
        Bytes a second that the storage delivers to all workers together; None takes it as no limit.
    seconds_of_task
        Of scheduler and driver, for a task.
    """
    if rows is None:
        rows = known.rows * text / known.text
    else:
        text, pieces = known.text * rows / known.rows, None
    times = rows / known.rows
    pieces = pieces or math.ceil(text / PIECE_BYTES)
    files = math.ceil(rows / (BLOCK_ENTRIES * FILE_BLOCKS))
    share = known.sorted / known.pieces
    runs, indexes, dataset = (times * size for size in (known.runs, known.indexes, known.dataset))
    names = times * known.names
    rounds = [
        _Round("read", pieces, times * known.seconds["read"], text, runs + indexes),
        _Round("sort", math.ceil(share * pieces), times * known.seconds["sort"], share * runs, share * runs),
        _Round("merge", files, times * known.seconds["merge"], runs + indexes, dataset),
    ]
    join = known.join_seconds / known.pieces * pieces + NAME_SECONDS * max(0.0, names - known.names * pieces)
    lasting = [each.lasts(workers, seconds_of_task, bandwidth) for each in rounds]
    lasting[0] = max(lasting[0], join)  # the driver joins the names of a piece while others are read
    moved = sum(each.read + each.written for each in rounds)
    seconds = FIRST_SECONDS + sum(lasting)
    busy = {
        **{f"{WORDS[each.name]} (workers)": each.busy(workers) for each in rounds},
        "joining names (driver)": join,
        "handing out tasks (scheduler and driver)": seconds_of_task * sum(each.tasks for each in rounds),
        **({"reading and writing (storage)": moved / bandwidth} if bandwidth else {}),
    }
    each_piece = runs / pieces
    return {
        "rows": round(rows),
        "text": round(text),
        "workers": workers,
        "rounds": [
            {"round": each.name, "tasks": each.tasks, "seconds_of_a_task": each.seconds / max(each.tasks, 1),
             "seconds": lasts, "read": round(each.read), "written": round(each.written)}
            for each, lasts in zip(rounds, lasting, strict=True)
        ],
        "seconds": seconds,
        "exchanged": round(2 * (runs + indexes) + 2 * share * runs),
        "storage_a_second": moved / seconds,
        "dataset": round(dataset),
        "files": 2 * files + 3,
        "staging_files": round(pieces * (2 + 2 * share) + 3 * files),
        "memory_of_a_worker": round(PROCESS_BYTES + min(2 * MEMORY_BYTES, 2 * each_piece)),
        "memory_of_the_driver": round(PROCESS_BYTES + (NAME_BYTES + known.new * NEW_NAME_BYTES) * names),
        "names": round(names),
        "busy": busy,
        "bottleneck": max(busy, key=lambda resource: busy[resource]),
    }  # fmt: skip


WORDS = {"read": "parsing", "sort": "sorting once more", "merge": "merging"}


@dataclass(frozen=True, slots=True)
class _Round:
    """A round of independent tasks: processor seconds of all of them, and the bytes that they read and write."""

    name: str
    tasks: int
    seconds: float
    read: float
    written: float

    def busy(self, workers: int) -> float:
        """Seconds of the worker with the most tasks."""
        return math.ceil(self.tasks / workers) * self.seconds / self.tasks if self.tasks else 0.0

    def lasts(self, workers: int, seconds_of_task: float, bandwidth: float | None) -> float:
        """Seconds of the round, by the scalability law, or by the bandwidth of the storage if that is less."""
        if not self.tasks:
            return 0.0
        each, used = self.seconds / self.tasks, min(workers, self.tasks)
        rate = throughput(np.array(float(used)), 1.0 / each, seconds_of_task / each, 0.0)
        full = math.ceil(self.tasks / used) * used  # in the last turn, some workers may have nothing to do
        moving = (self.read + self.written) / bandwidth if bandwidth else 0.0
        return max(full / float(rate), moving)
