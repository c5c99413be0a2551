"""Importing: sources on one side, the dataset writer on the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.frames import read_dataset
from distagg.engine.progress import Progress, silent
from distagg.errors import InputError, UsageError, unknown
from distagg.storage.atomic import refuse_existing
from distagg.storage.paths import Place, local, place


def import_dataset(
    kind: str, sources: Sequence[str | Path], target: str | Place | None = None, *, progress: Progress = silent,
    **options: Any,
) -> Dataset:  # fmt: skip
    """Read source files into a dataset at a path or URL, all or nothing; or into memory.

    Parameters
    ----------
    kind
        ``letor``, ``trec``, ``ratings``, ``rankings`` or ``pairs``.
    sources
        Files, or directories of files.
    target
        The directory (or URL) to make; it must not be there yet. None holds the dataset in memory, for what is used
        once: some 25 bytes an entry, in smaller chunks than on disk, so that what a model sums over queries may differ
        in its last bits. Rankings of every query on its own do not.
    progress
        Called with the number of rows that were read and written since the last call.
    **options
        The source's. Of trec: ``qrels``, ``expert`` (file or tag), ``by`` (score or rank). Of ratings: ``users`` and
        ``items`` name files about them, whose columns the dataset keeps; ``scale`` is the least and the largest rating
        that is taken.

    Returns
    -------
    Dataset
        What was imported, opened.
    """
    from distagg.sources import SOURCES  # late: only importing needs them
    from distagg.sources.about import read_about

    if kind not in SOURCES:
        raise unknown("source kind", kind, SOURCES)
    if target is not None:
        refuse_existing(place(target))
    files = [file for source in sources for file in _files(local(str(source), "source files"))]
    about = {name: read_about(Path(options[name])) for name in ("users", "items") if options.get(name) is not None}
    options = {name: value for name, value in {**options, **about}.items() if value is not None}
    source = SOURCES[kind](files, **options)
    if target is None:
        if kind == "ratings":
            raise UsageError("ratings, and what is known of users and items, are kept on disk; name a target")
        source.partition = "query"  # pairs of one query, which a disk has in several chunks, are one in memory
        return read_dataset(source, progress=progress)
    write_dataset(source, target, progress=progress, **about)
    return Dataset.open(target)


def _files(source: Path) -> list[Path]:
    """A file, or the files of a directory in name order."""
    if not source.is_dir():
        return [source]
    files = sorted(file for file in source.iterdir() if file.is_file() and not file.name.startswith((".", "_")))
    if not files:
        raise InputError(str(source), found="an empty directory", expected="source files")
    return files
