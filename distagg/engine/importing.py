"""Import: read files with a source, write them with the dataset writer."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from distagg.columns import LIST_NAMES, folder_columns
from distagg.dataset import Dataset, write_dataset
from distagg.dataset.frames import hold_source
from distagg.dataset.manifest import is_dataset
from distagg.engine.progress import Progress, silent
from distagg.engine.runner import Runner, as_runner
from distagg.errors import InputError, UsageError, unknown
from distagg.storage.atomic import refuse_existing
from distagg.storage.paths import HTTP, Place, Store, place

if TYPE_CHECKING:
    from distagg.sources import Source

OWNERS = {  # the kinds of source that have an option
    "qrels": ("letor", "trec", "ratings", "rankings", "pairs", "beir"),
    "expert": ("trec",),
    "by": ("trec",),
    "columns": ("rankings", "pairs"),
    "covariates": ("pairs",),
    "users": ("ratings",),
    "items": ("ratings",),
    "scale": ("ratings",),
}

FOLDER_NAMES = {word for name in ("query", "expert", "item") for word in (name, *LIST_NAMES[name])}


def import_dataset(
    kind: str | None,
    sources: str | Place | Sequence[str | Place],
    target: str | Place | None = None,
    *,
    append: bool = False,
    base: str | Place | None = None,
    runner: Runner | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Dataset:
    """Import source files into a dataset at a path or URL, all or nothing, or into memory.

    Parameters
    ----------
    kind
        ``letor``, ``trec``, ``ratings``, ``rankings``, ``pairs`` or ``beir`` (a BEIR folder, and runs); None tells it
        by the files' content, and refuses to guess. Files of judgements among them are then taken as ``qrels``.
    sources
        Files, patterns, or directories of files, by path or URL (``s3://``, ``gs://``, ``abfs://``, ``https://``); or
        ``ir_datasets:ID``, a dataset with scored documents.
    target
        The directory (or URL) to create; it must not exist yet. None keeps the dataset in memory, at some 25 bytes an
        entry. Chunks are then smaller than on disk, so that sums over queries may differ in their last bits; models
        that rank every query on its own give the same bits.
    append
        Add the queries of the files to the dataset at the target, as a new version of it, all or nothing; of a dataset
        with one query, its new experts. New experts of known queries are added, too: the files of these queries are
        written again. Who has opened the version before goes on reading it.
    base
        A dataset to which the files are added, as by ``append``, but in a new directory, the target; it stays as it is.
    runner
        Where to import into a target: in this process, or on the workers of a cluster, with the same bytes.
    progress
        Called with the number of rows read and written since the last call.
    **options
        Options of the source. All: ``qrels``, files of judgements, or a table query, item, label. trec: ``expert``
        (file or tag), ``by`` (score or rank). rankings and pairs: ``columns``, our names of columns that the tables
        name otherwise. pairs: ``covariates``, columns to keep for fits, as in ``"length_a-length_b,position"``.
        ratings: ``users`` and ``items`` are files that describe them, whose columns the dataset keeps; ``scale`` is the
        smallest and the largest valid rating.

    Returns
    -------
    Dataset
        The imported dataset.
    """
    from distagg.sources.published import is_reference

    _refuse_unknown(kind)
    if target is None and (append or base is not None):
        raise UsageError("append: found no target, expected the dataset to append to")
    if target is not None and not append:
        refuse_existing(place(target))
    options = {name: value for name, value in options.items() if value is not None}
    on_cluster = runner is not None and runner.client is not None and target is not None
    if len(as_paths(sources)) == 1 and is_reference(as_paths(sources)[0]):
        return _import_reference(str(as_paths(sources)[0]), target, progress, **options)
    files = source_files(sources, options.get("columns"))
    named = {str(file.absolute()): str(file) for file in files if isinstance(file, Path)}
    if on_cluster:  # workers may be in another folder
        files = [file.absolute() if isinstance(file, Path) else file for file in files]
    opened = source_of(kind, files, options)
    source, about = opened.source, opened.about
    if target is None:
        if about:
            raise UsageError(f"the table of {' and '.join(about)} is kept on disk with the ratings; give a target")
        source.partition = "query"  # on disk the pairs of one query may be in several chunks, in memory they are in one
        return hold_source(source, progress=progress)
    if not append and base is None and (not on_cluster or runner is None):
        write_dataset(source, target, progress=progress, **about)
        return Dataset.open(target)
    from distagg.engine.import_append import append_in_pieces
    from distagg.engine.import_parallel import import_in_pieces

    more: dict[str, Any] = {"options": opened.options, "progress": progress, **about}
    try:
        if append:
            append_in_pieces(source, place(target), runner, **more)
        elif base is not None:
            append_in_pieces(source, place(base), runner, target=place(target), **more)
        else:
            import_in_pieces(source, place(target), as_runner(runner), **more)
    except InputError as error:
        file = named.get(error.file, error.file)
        raise InputError(
            file, line=error.line, found=error.found, expected=error.expected, remedy=error.remedy
        ) from error
    return Dataset.open(target)


def import_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a source among other values, as ``import_dataset`` takes them."""
    options = {name: values[name] for name in OWNERS if values.get(name) is not None}
    return options | ({"scale": tuple(options["scale"])} if "scale" in options else {})


def _refuse_unknown(kind: str | None) -> None:
    from distagg.sources import SOURCES  # late: only imports need them

    if kind is not None and kind not in SOURCES:
        raise unknown("source kind", kind, SOURCES)


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """A source, the tables about its users and items, and the options that its rows depend on."""

    source: Source
    about: dict[str, pa.Table]
    options: dict[str, Any]


def source_of(kind: str | None, files: list[Place], options: dict[str, Any]) -> OpenedSource:
    """The source of files, with the options of ``import_dataset``; a kind of None is told by their content."""
    from distagg.sources import SOURCES  # late: only imports need them
    from distagg.sources.published import beir_qrels, is_reference
    from distagg.sources.ratings import read_about
    from distagg.sources.trec import JudgedSource, read_qrels

    _refuse_unknown(kind)
    if kind is None:
        kind, files, judgements = _tell_kind(files, options.get("qrels"), options.get("columns"))
        options |= {"qrels": judgements} if judgements else {}
    for name in options:
        if kind not in OWNERS.get(name, (kind,)):
            raise UsageError(f"{name} is an option of {', '.join(OWNERS[name])}, found it with {kind}")
    about = {name: read_about(place(options[name])) for name in ("users", "items") if options.get(name) is not None}
    judged = options.pop("qrels", None)
    if kind == "beir" and judged is None:
        judged = beir_qrels(files) or None
    if judged is not None and not isinstance(judged, pa.Table) and any(map(is_reference, as_paths(judged))):
        judged = read_qrels(as_paths(judged))
    source: Source = SOURCES[kind](files, **{**options, **about})
    if judged is not None:
        source = JudgedSource(
            source, judged if isinstance(judged, pa.Table) else as_paths(judged), options.get("columns")
        )
    given = {**options, **about, "kind": kind, **({"qrels": judged} if isinstance(judged, pa.Table) else {})}
    return OpenedSource(source, about, given)


def _import_reference(
    reference: str, target: str | Place | None, progress: Progress, qrels: Any = None, **options: Any
) -> Dataset:
    """Import the scored documents and the judgements of a dataset of ir_datasets."""
    from distagg.sources.published import ScoredSource, ir_dataset
    from distagg.sources.trec import JudgedSource, read_qrels

    if options:
        raise UsageError(f"{reference} has no option {', '.join(options)}")
    source: Source = ScoredSource(reference)
    if qrels is not None or ir_dataset(reference).has_qrels():
        judged = qrels if isinstance(qrels, pa.Table) else read_qrels(as_paths(qrels or reference))
        source = JudgedSource(source, judged)
    if target is None:
        return hold_source(source, progress=progress)
    write_dataset(source, target, progress=progress)
    return Dataset.open(target)


def read_dataset(
    sources: str | Place | Sequence[str | Place],
    *,
    kind: str | None = None,
    qrels: str | Place | Sequence[str | Place] | pa.Table | None = None,
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
        Files of relevance judgements, or a table with the columns query, item and label. Without it, the files among
        ``sources`` whose content is judgements.
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
    if len(as_paths(sources)) == 1 and is_dataset(as_paths(sources)[0]):
        return Dataset.open(as_paths(sources)[0])
    return import_dataset(kind, sources, progress=progress, qrels=qrels, columns=columns or None, **options)


def _tell_kind(files: Sequence[Place], qrels: Any, columns: Mapping[str, str] | None) -> tuple[str, list[Place], Any]:
    """The kind of files, those that are to be ranked, and the judgements: those given, or those among the files."""
    from distagg.sources.detect import QRELS, kind_of, kind_of_file

    kinds = {file: kind_of_file(file, columns) for file in files}
    judged = [file for file in files if kinds[file] == QRELS]
    ranked = [file for file in files if kinds[file] != QRELS]
    if not ranked:
        raise UsageError(f"{', '.join(map(str, judged))}: found only judgements, expected files to rank as well")
    given = (
        {path.resolve() for path in as_paths(qrels)} if qrels is not None and not isinstance(qrels, pa.Table) else ()
    )
    other = [file for file in judged if file.resolve() not in given]
    if other and qrels is not None:
        raise UsageError(f"{other[0]} holds judgements, as qrels do, which are given too; give them once")
    return kind_of(ranked, columns), ranked, judged if qrels is None else qrels


def as_paths(paths: str | Place | Sequence[str | Place]) -> list[Place]:
    """One path or URL, or several."""
    return [place(path) for path in ([paths] if isinstance(paths, str | Path | Store) else paths)]


def source_files(sources: str | Place | Sequence[str | Place], columns: Mapping[str, str] | None = None) -> list[Place]:
    """The files of paths and URLs, in name order: files, the files in folders, and files that match a pattern.

    A folder inside a folder is read if its name sets a column, such as ``expert=bm25`` (the layout of Hive and Spark).
    """
    return [file for source in as_paths(sources) for file in _files(source, columns or {})]


def expected_rows(kind: str | None, sources: str | Place | Sequence[str | Place]) -> int:
    """About as many rows as ``import_dataset`` will read and write, for its progress; 0 if unknown."""
    from distagg.sources.estimate import estimated_rows

    try:
        paths = [path for path in as_paths(sources) if isinstance(path, Path)]
        if len(paths) < len(as_paths(sources)):
            return 0  # a URL: reading samples may take as long as the import
        return estimated_rows([file for file in source_files(paths) if isinstance(file, Path)], kind)
    except (InputError, UsageError):
        return 0  # the import itself says what is wrong


def is_pattern(path: Place) -> bool:
    """Whether a path is a pattern (``runs/*.run``) and not the name of a file that exists.

    >>> is_pattern(Path("runs/*.run")), is_pattern(Path("runs/a.run"))
    (True, False)
    """
    if isinstance(path, Store):  # of a URL, a question mark begins the query
        return any(letter in path.key for letter in "*[")
    return any(letter in str(path) for letter in "*?[") and not path.exists()


def _matching(pattern: Store) -> list[Store]:
    """The objects that match: ``*`` and ``[...]`` inside a folder, ``**/`` over folders."""
    if pattern.scheme in HTTP:
        raise UsageError(f"{pattern}: found a pattern, but {pattern.scheme}:// cannot list files; name each of them")
    words = re.split(r"(\*\*/|\*|\[[^]]*\])", pattern.key)
    special = {"**/": "(?:.*/)?", "*": "[^/]*"}
    wanted = re.compile("".join(special.get(w, w if w.startswith("[") else re.escape(w)) for w in words))
    folder = replace(pattern, key=re.split(r"[*[]", pattern.key)[0].rpartition("/")[0])
    return [file for file in folder.tree() if wanted.fullmatch(file.key)]


def _files(source: Place, columns: Mapping[str, str]) -> list[Place]:
    matched: list[Place]
    if is_pattern(source):
        if isinstance(source, Store):
            matched = [*_matching(source)]
        else:
            matched = [*sorted(Path(file) for file in glob.glob(str(source), recursive=True) if Path(file).is_file())]
        if not matched:
            raise InputError(str(source), found="no file that matches the pattern", expected="source files")
        return matched
    folder = source.is_dir() if isinstance(source, Path) or source.scheme not in HTTP else False
    files = list(_inside(source, columns)) if folder else [source]
    if not files:
        raise InputError(str(source), found="an empty directory", expected="source files")
    return files


def _inside(folder: Place, columns: Mapping[str, str]) -> Iterator[Place]:
    """The files of a folder, and of the folders in it whose names give a column."""
    inside: list[Place] = sorted(folder.iterdir(), key=str)
    for path in inside:
        if path.name.startswith((".", "_")):
            continue
        if path.is_file():
            yield path
        elif name := next(iter(folder_columns([path.name])), None):
            if name not in columns and name.lower() not in FOLDER_NAMES:
                raise InputError(
                    str(path),
                    found=f"a folder for each {name}",
                    expected="folders that name a column, expert=bm25",
                    remedy=f"give one of these folders, or say what it is: columns={{{name!r}: ...}}",
                )
            yield from _inside(path, columns)
