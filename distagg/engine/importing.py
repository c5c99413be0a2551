"""Import: read files with a source, write them with the dataset writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.frames import hold_source
from distagg.dataset.manifest import is_dataset
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
        return hold_source(source, progress=progress)
    write_dataset(source, target, progress=progress, **about)
    return Dataset.open(target)


def read_dataset(
    sources: str | Path | Sequence[str | Path],
    *,
    kind: str | None = None,
    qrels: str | Path | Sequence[str | Path] | None = None,
    columns: Mapping[str, str] | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Dataset:
    """Read files into a dataset in memory, or open a dataset directory.

    Parameters
    ----------
    sources
        Files, directories of files, or one dataset directory.
    kind
        The kind of the files, as in ``import_dataset``; None tells it by their content, and refuses to guess.
    qrels
        Files of relevance judgements. Files among ``sources`` whose content is judgements are added to them.
    columns
        Our names of columns that the tables name otherwise: ``{"site": "item"}``.
    progress
        Called with the number of rows read since the last call.
    **options
        Options of the source, as in ``import_dataset``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "bm25").write_text("7 Q0 x 1 9.5 bm25\\n")
    ...     _ = (Path(folder) / "judged").write_text("7 0 x 1\\n")
    ...     read_dataset(folder).info()["labels"]
    {'1': 1}
    """
    from distagg.sources.detect import QRELS, kind_of, kind_of_file

    sources = [sources] if isinstance(sources, str | Path) else list(sources)
    if len(sources) == 1 and is_dataset(place(str(sources[0]))):
        return Dataset.open(str(sources[0]))
    files = [file for source in sources for file in _files(local(str(source), "source files"))]
    judged = [Path(file) for file in ([qrels] if isinstance(qrels, str | Path) else qrels or ())]
    if kind is None:
        kinds = {file: kind_of_file(file, columns) for file in files}
        judged += [file for file in files if kinds[file] == QRELS]
        files = [file for file in files if kinds[file] != QRELS]
        kind = kind_of(files, columns)
    if judged:
        options["qrels"] = judged
    if columns and kind in ("rankings", "pairs"):
        options["columns"] = columns
    return import_dataset(kind, files, progress=progress, **options)


def _files(source: Path) -> list[Path]:
    """A file, or the files of a directory in name order."""
    if not source.is_dir():
        return [source]
    files = sorted(file for file in source.iterdir() if file.is_file() and not file.name.startswith((".", "_")))
    if not files:
        raise InputError(str(source), found="an empty directory", expected="source files")
    return files
