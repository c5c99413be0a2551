"""Rankings on disk: rows query, item, rank, score as committed Parquet, or one TREC run or CSV file.

The worker that ranks a chunk writes its part under the name of its attempt; the driver accepts one attempt of each part
and publishes all of them together. Files that are not rows of the ranking have names that begin with an underscore
(``_fits/``, ``_experts.parquet``, ``_manifest.json``). Readers of Parquet directories skip these, so that they see one
table.
"""

from __future__ import annotations

import csv
import hashlib
import io
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distagg.arrow import as_arrow, as_numpy, as_scalar, as_words, one_array
from distagg.errors import InfrastructureError, InputError
from distagg.storage.parquet import CHECKSUMS
from distagg.storage.paths import Place, Store, explained
from distagg.storage.sealed import HIDDEN_MANIFEST, read_committed_json, sealed
from distagg.storage.verified import read_whole, unseen
from distagg.types import RANKINGS_TABLE, SCHEMA_VERSION

Format = Literal["parquet", "trec", "csv", "safe-csv"]
FORMATS: tuple[Format, ...] = ("parquet", "trec", "csv")
RANKINGS_FORMAT = "distagg-rankings"
RANK_AGAIN = "the rankings are damaged; rank again"
EXPERTS = "_experts.parquet"  # the table about experts, of models that learn how reliable they are
FITS = "_fits"  # the folder of tables about fits
EXPONENT = 1e10  # Arrow and Python write smaller numbers without an exponent
SUFFIXES: dict[str, Format] = {".csv": "csv", ".trec": "trec", ".run": "trec", ".txt": "trec"}


def safe_format(fmt: Format, safe_csv: bool) -> Format:
    """The format, in which CSV escapes text that a spreadsheet would run, if that is asked for.

    >>> safe_format("csv", True), safe_format("trec", True)
    ('safe-csv', 'trec')
    """
    return "safe-csv" if safe_csv and fmt == "csv" else fmt


@dataclass(frozen=True, slots=True)
class Written:
    """A file that a worker wrote: the attempt's name, its row count, bytes and SHA-256."""

    attempt: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RankedPart:
    """One chunk's rankings, its table of fits (of models that iterate), columns, and number of unconverged fits."""

    ranking: Written
    fits: Written | None
    columns: tuple[str, ...]
    unfinished: int
    coefficients: tuple[dict[str, Any], ...] = ()  # of covariates, a row for each

    @property
    def rows(self) -> int:
        return self.ranking.rows


def write_part(
    table: pa.Table,
    folder: Place,
    index: int,
    fmt: Format,
    tag: str,
    *,
    fits: pa.Table | None = None,
    unfinished: int = 0,
) -> RankedPart:
    """Write one chunk's rankings as a new attempt; fits (folder ``_fits``) only with Parquet."""
    if fmt == "parquet":
        body = as_parquet(table, ["query", "status"])
    else:
        body = as_trec(table, tag) if fmt == "trec" else as_csv(table, header=False, safe=fmt == "safe-csv")
    ranking = _write_attempt(folder, f"part-{index:05d}", body, len(table))
    written_fits = None
    if fits is not None and fmt == "parquet":
        (folder / FITS).mkdir(exist_ok=True)
        written_fits = _write_attempt(folder, f"{FITS}/fits-{index:05d}", as_parquet(fits), len(fits))
    return RankedPart(ranking, written_fits, tuple(table.column_names), unfinished)


def _write_attempt(folder: Place, stem: str, body: bytes, rows: int) -> Written:
    ending = ".parquet" if isinstance(folder, Store) else ""  # object stores have no rename: this is the final name
    attempt = f"{stem}.{uuid.uuid4().hex[:8]}{ending}"
    try:
        (folder / attempt).write_bytes(body)
    except FileNotFoundError as error:
        if not folder.is_dir():
            raise unseen(folder) from error
        raise
    return Written(attempt, rows, len(body), hashlib.sha256(body).hexdigest())


def as_parquet(table: pa.Table, dictionary: list[str] | bool = False) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", compression_level=1, use_dictionary=dictionary, **CHECKSUMS)
    return sink.getvalue()


def publish_directory(
    folder: Place, parts: Iterable[RankedPart], about: dict[str, Any], experts: pa.Table | None = None
) -> None:
    """Rename the accepted attempts to their final names (not on a store), delete the others, write the manifest.

    ``experts`` is the table about experts, which is written if it has rows.
    """
    parts = list(parts)
    files = [_accept(folder, part.ranking, f"part-{index:05d}") for index, part in enumerate(parts)]
    fits = [_accept(folder, part.fits, f"{FITS}/fits-{index:05d}") for index, part in enumerate(parts) if part.fits]
    accepted = {str(folder / entry["path"]) for entry in (*files, *fits)}
    for file in (*folder.glob("part-*"), *(folder / FITS).glob("fits-*")):
        if str(file) not in accepted:
            file.unlink()
    body = {"format": RANKINGS_FORMAT, "schema": SCHEMA_VERSION, **about, "files": files, "fits": fits}
    if experts is not None and len(experts):
        body["tables"] = [written_whole(folder / EXPERTS, as_parquet(experts))]
    (folder / HIDDEN_MANIFEST).write_bytes(sealed(body))


def written_whole(file: Place, body: bytes) -> dict[str, Any]:
    """Write a small file; returns its entry in the manifest."""
    file.write_bytes(body)
    return {"path": file.name, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}


def _accept(folder: Place, written: Written, stem: str) -> dict[str, Any]:
    name = written.attempt
    if not isinstance(folder, Store):
        name = f"{stem}.parquet"
        (folder / written.attempt).rename(folder / name)
    return {"path": name, **{key: value for key, value in asdict(written).items() if key != "attempt"}}


def publish_file(folder: Place, parts: Iterable[RankedPart], target: Place, fmt: Format) -> tuple[str, int]:
    """Join the accepted attempts into one file; returns its SHA-256 and its size. A damaged attempt is an error."""
    parts = list(parts)
    total, size = hashlib.sha256(), 0
    with explained(target), target.open("wb") as out:
        if fmt != "trec":
            names = parts[0].columns if parts else RANKINGS_TABLE.names
            head = (",".join(names) + "\n").encode()
            out.write(head)
            total.update(head)
            size += len(head)
        for part in parts:
            body = (folder / part.ranking.attempt).read_bytes()
            if hashlib.sha256(body).hexdigest() != part.ranking.sha256:
                raise InfrastructureError(
                    f"{folder / part.ranking.attempt} is not what was written; check the disk, then run again"
                )
            out.write(body)
            total.update(body)
            size += len(body)
    return total.hexdigest(), size


def as_trec(table: pa.Table, tag: str) -> bytes:
    """``query Q0 item rank score tag`` lines; tag and ids must not contain white space."""
    columns = [one_array(table["query"]), one_array(table["item"]), one_array(table["rank"]).cast(pa.string())]
    for name, ids in zip(("query", "item"), columns, strict=False):
        bad = pc.index(pc.match_substring_regex(ids, r"\s"), True).as_py() if _blanks(ids) else -1
        if bad >= 0:
            raise InputError(
                "rankings",
                found=f"{name} id {table[name][bad].as_py()!r} with white space",
                expected="ids without it for TREC output",
                remedy="write parquet or csv",
            )
    lines = pc.binary_join_element_wise(
        columns[0],
        as_scalar("Q0"),
        columns[1],
        columns[2],
        _shortest(table["score"]),
        as_scalar(f"{tag}\n"),
        as_scalar(" "),
    )
    return _bytes(lines).tobytes()


def _bytes(words: pa.StringArray) -> NDArray[np.uint8]:
    """The bytes of all words."""
    ends = np.frombuffer(words.buffers()[1], np.int32)[words.offset :][: len(words) + 1] if len(words) else [0, 0]
    return np.frombuffer(words.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]


def _blanks(words: pa.StringArray) -> bool:
    """Whether there is any white space (of ASCII)."""
    return bool((_bytes(words) <= ord(" ")).any())


def as_csv(table: pa.Table, *, header: bool, safe: bool = False) -> bytes:
    """Rows as CSV; with ``safe``, text that a spreadsheet would run as a formula begins with an apostrophe.

    >>> as_csv(pa.table({"item": ["=1+1", "b"], "score": [-1.5, 2.0]}), header=False, safe=True)
    b"'=1+1,-1.5\\nb,2.0\\n"
    """
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    if header:
        names = as_words(table.column_names)  # of a matrix by item, they are the items
        writer.writerow((_harmless(names) if safe else names).to_pylist())
    columns = [_shortest(column) if pa.types.is_floating(column.type) else column for column in table.columns]
    if safe:
        columns = [
            _harmless(own) if pa.types.is_string(named.type) else own
            for own, named in zip(columns, table.columns, strict=True)
        ]
    writer.writerows(zip(*(column.to_pylist() for column in columns), strict=True))
    return sink.getvalue().encode()


def _harmless(words: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Words that no spreadsheet takes for a formula."""
    formula = pc.match_substring_regex(words, r"^[=+\-@\t\r]")
    return pc.if_else(formula, pc.binary_join_element_wise(as_scalar("'"), words, as_scalar("")), words)


def _shortest(column: pa.ChunkedArray) -> pa.Array:
    """The shortest text that reads back as the same float, as Python writes it.

    Arrow would be three times as fast, but it writes whole numbers without a point, and other exponents.
    """
    values = as_numpy(one_array(column))
    text = as_arrow(values).cast(pa.string())
    size = np.abs(values)
    whole = (values == np.trunc(values)) & (size < EXPONENT)
    if whole.any():
        text = pc.if_else(as_arrow(whole), pc.binary_join_element_wise(text, as_scalar("0"), as_scalar(".")), text)
    other = ~whole & ~((size >= 1e-4) & (size < EXPONENT))
    if other.any():
        text = pc.replace_with_mask(text, as_arrow(other), as_words([repr(value) for value in values[other].tolist()]))
    return text


class Part(NamedTuple):
    """A file of published rankings, as their manifest describes it."""

    file: Place
    sha256: str
    rows: int


def parts_of(path: Place) -> list[Part]:
    """The files of a directory written by 'distagg rank', in the order of their queries."""
    folder, body = read_committed_json(path, RANKINGS_FORMAT, "rankings made by 'distagg rank'")
    for entry in body["files"]:
        if type(entry.get("rows")) is not int:
            found = f"{entry.get('rows')!r} rows of {entry['path']}"
            raise InputError(str(path), found=found, expected="a whole number", remedy=RANK_AGAIN)
    return [Part(folder / entry["path"], entry["sha256"], entry["rows"]) for entry in body["files"]]


def read_part(part: Part) -> pa.Table:
    """All rows of a file of rankings, if it has the hash of their manifest."""
    return read_whole(part.file, part.sha256, remedy=RANK_AGAIN)


def read_ranked_parts(path: Place) -> pa.Table:
    """All rows of a directory written by 'distagg rank'."""
    pieces = [read_part(part) for part in parts_of(path)]
    return pa.concat_tables(pieces or [RANKINGS_TABLE.empty_table()])
