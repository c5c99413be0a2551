"""Add the rows of a source to a dataset, in the rounds of an import: here, or on the workers of a cluster.

The bytes do not depend on where the rounds run, because here they are the same tasks. All or nothing: the new version
appears with one small write (``dataset.build.append``). What is finished when the driver dies is in the staging folder,
and the same call continues with it, unless the dataset got another version meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from distagg.dataset import Dataset
from distagg.dataset.build import writer as files_of
from distagg.dataset.build.append import Growth, count_file
from distagg.dataset.build.block import BlockCounts
from distagg.dataset.build.regroup import MEMORY_BYTES
from distagg.dataset.build.writer import BLOCK_ENTRIES, DatasetWriter
from distagg.dataset.manifest import Manifest
from distagg.engine.import_parallel import PIECE_BYTES, Outcome, Rounds, in_staging, link_built, plain_options
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import Runner, as_runner
from distagg.sources.source import Source
from distagg.storage.atomic import next_version, staged_directory
from distagg.storage.paths import Place, place
from distagg.storage.sealed import MANIFEST
from distagg.storage.staging import link_or_copy


def append_in_pieces(
    source: Source,
    base: Place,
    runner: Runner | None = None,
    *,
    target: Place | None = None,
    options: Mapping[str, Any] | None = None,
    users: pa.Table | None = None,
    items: pa.Table | None = None,
    progress: Progress = silent,
    piece_bytes: int = PIECE_BYTES,
    memory_bytes: int = MEMORY_BYTES,
    block_entries: int = BLOCK_ENTRIES,
) -> Manifest:
    """Add the queries (or experts) of a source to a dataset, all or nothing.

    Parameters
    ----------
    source
        What to read.
    base
        The dataset's directory.
    runner
        Where to run; None is this process.
    target
        A directory to create with the larger dataset, instead of a new version of the old one. On a local disk the
        unchanged files of both are links.
    options, users, items, progress, piece_bytes, memory_bytes, block_entries
        As for ``import_in_pieces``.
    """
    growth = Growth(Dataset.open(base))
    known = hashlib.sha256(growth.base.manifest.to_json().encode()).hexdigest()
    sizes = (piece_bytes, memory_bytes, block_entries, files_of.FILE_BLOCKS)
    workers = as_runner(runner)

    def work(staging: Place, pieces: list[Source]) -> Manifest:
        rounds = Rounds(source, staging, workers, progress, memory_bytes, block_entries, growth)
        outcome = rounds.run(pieces)
        with _new_directory(base, target) as folder:
            return _publish(folder, growth, outcome, staging, workers, users, items)

    about = {"options": plain_options(options), "sizes": sizes, "base": known}
    return in_staging(target or base, source, about, piece_bytes, work)


@contextmanager
def _new_directory(base: Place, target: Place | None) -> Iterator[Place]:
    with next_version(base) if target is None else staged_directory(target) as folder:
        yield folder


def _publish(
    folder: Place,
    growth: Growth,
    outcome: Outcome,
    staging: Place,
    runner: Runner,
    users: pa.Table | None,
    items: pa.Table | None,
) -> Manifest:
    """Bring old and new files together, and write what describes them."""
    total, blocks = link_built(outcome.built, staging, folder)
    with DatasetWriter(folder, outcome.layout) as writer:
        growth.describe(writer, outcome.query, users, items)
        about = writer.close()
    written = [*about, *(file for each in outcome.built for file in each.files)]
    kept = growth.kept(outcome.touched, written)
    for file in kept:
        link_or_copy(place(growth.base.path) / file.path, folder / file.path)
    numbers = sorted({block.file for block in growth.base.manifest.blocks})
    todo = [(growth.base.path, file, file in outcome.touched) for file in numbers]
    counted = dict(zip(numbers, runner.each(_count_task, todo), strict=True))
    manifest = growth.manifest(outcome.layout, counted, outcome.touched, outcome.query, total, blocks)
    manifest = replace(manifest, files=tuple(sorted([*kept, *written], key=lambda file: file.path)))
    (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def _count_task(work: tuple[str, int, bool]) -> BlockCounts:
    path, file, whole = work
    return count_file(path, file, whole=whole)
