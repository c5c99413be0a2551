"""Import: read files with a source, write them with the dataset writer."""

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
    """Import source files into a dataset at a path or URL, all or nothing, or into memory.

    Parameters
    ----------
    kind
        ``letor``, ``trec``, ``ratings``, ``rankings`` or ``pairs``.
    sources
        Files, or directories of files.
    target
        The directory (or URL) to create; it must not exist yet. None keeps the dataset in memory, at some 25 bytes an
        entry. Chunks are then smaller than on disk, so that sums over queries may differ in their last bits; models
        that rank every query on its own give the same bits.
    progress
        Called with the number of rows read and written since the last call.
    **options
        Options of the source. trec: ``qrels``, ``expert`` (file or tag), ``by`` (score or rank). ratings: ``users``
        and ``items`` are files that describe them, whose columns the dataset keeps; ``scale`` is the smallest and the
        largest valid rating.

    Returns
    -------
    Dataset
        The imported dataset.
    """
    from distagg.sources import SOURCES  # late: only imports need them
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
            raise UsageError("ratings can only be imported to disk, with their users and items; give a target")
        source.partition = "query"  # on disk the pairs of one query may be in several chunks, in memory they are in one
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
