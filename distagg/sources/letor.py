"""LETOR 4.0 aggregation files: ``label qid:Q 1:NULL 2:17 ... #docid = X inc = .. prob = ..``.

Feature numbers are the experts. A value is the item's position in that engine's full list (small = top); NULL means
that the engine does not list the item. Arrow parses a block of lines column by column, some 50 MB/s per core; an
irregular block goes to the line parser, which reads it or names the bad line.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.errors import InputError
from distagg.sources.source import BATCH_BYTES, Source, SourceTable, open_bytes
from distagg.sources.spans import LineCount, Span, line_blocks, share_files
from distagg.storage.paths import Place, place
from distagg.types import ITEMS

BLOCK_BYTES = BATCH_BYTES // 4  # parsing takes about eight times the text
LINE_SHAPE = "'label qid:QUERY 1:RANK 2:NULL ... #docid = ITEM'"
_LABEL = re.compile(r"[0-9]{1,9}")
_FEATURE = re.compile(r"[1-9][0-9]{0,8}")
_NUMBER = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DOCID = r"docid[ \t]*=[ \t]*(?P<item>[^ \t\r\n\f\v]+)"


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Parsed lines: n items, and the e ranks that experts gave them."""

    query: pa.StringArray  # (n,)
    item: pa.StringArray  # (n,)
    label: pa.Int32Array  # (n,)
    line: np.ndarray  # (n,) from 1, in the file or in the span
    row: np.ndarray  # (e,) which of the n lines
    expert: pa.DictionaryArray  # (e,)
    rank: pa.DoubleArray  # (e,)


def read_lines(file: Place, span: Span | None = None) -> Iterator[Lines]:
    """Parse the lines of a file or of a span of it, a block at a time; the first bad line is an InputError."""
    count = LineCount(file, span)
    docid = re.compile(_DOCID.encode())
    named = False  # whether lines have docids
    for first_line, block in _blocks(file, span):
        if not block.endswith(b"\n"):
            before, _, last = block.rpartition(b"\n")
            if last.strip() and not docid.search(last) and (named or docid.search(before)):
                line = first_line + block.count(b"\n")
                found = "a truncated last line: without a line end, and without the docid that other lines have"
                raise count.error(line, found, f"lines like {LINE_SHAPE}")
            block += b"\n"
        named = named or docid.search(block) is not None
        lines = _parse_block(block, first_line, count)
        yield lines if lines is not None else _parse_lines(block, first_line, count)


def _blocks(file: Place, span: Span | None) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines with the number of the first; the file's last line may lack its line end."""
    line = 1
    for _, block in line_blocks(file, BLOCK_BYTES, span):
        yield line, block
        line += block.count(b"\n")


def _cut(strings: pa.Array, byte: bytes) -> tuple[pa.Array, pa.Array]:
    """Split every string at its first ``byte``; the second part is empty if there is none.

    Offsets alternate left, separator, right over the same buffer, so that no text is copied: several times faster than
    ``pc.split_pattern``. ``strings`` must start at offset 0.
    """
    n = len(strings)
    _, offsets_buffer, text = strings.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[: n + 1]
    places = np.flatnonzero(np.frombuffer(text, np.uint8, count=int(offsets[-1])) == byte[0])
    starts, ends = offsets[:-1], offsets[1:]
    if len(places) == n and bool(((places >= starts) & (places < ends)).all()):
        cuts, width = places, np.ones(n, np.int32)
    else:
        nearest = np.append(places, offsets[-1])[np.searchsorted(places, starts)]
        width = (nearest < ends).astype(np.int32)
        cuts = np.minimum(nearest, ends)
    both = np.empty(3 * n + 1, np.int32)
    both[0:-1:3], both[1::3], both[2::3], both[-1] = starts, cuts, cuts + width, offsets[-1]
    pieces = type(strings).from_buffers(3 * n, pa.py_buffer(both), text)
    every = np.arange(0, 3 * n, 3)
    return pieces.take(pa.array(every)), pieces.take(pa.array(every + 2))


def _parse_block(block: bytes, first_line: int, count: LineCount) -> Lines | None:
    """Parse the lines of a block, all columns at once; None if the block is irregular."""
    newlines = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
    offsets = np.concatenate([[0], newlines + 1]).astype(np.int32)
    raw = pa.StringArray.from_buffers(len(newlines), pa.py_buffer(offsets), pa.py_buffer(block))
    line = np.arange(first_line, first_line + len(raw))
    try:
        raw.validate(full=True)  # UTF-8
        head, comment = _cut(raw, b"#")
        head = pc.ascii_trim_whitespace(head)
        filled = pc.greater(pc.binary_length(head), 0)
        if not pc.all(filled).as_py():
            head, comment, line = (
                head.filter(filled),
                comment.filter(filled),
                line[filled.to_numpy(zero_copy_only=False)],
            )
        return _parse_columns(head, comment, line, count)
    except pa.ArrowInvalid:
        return None


def _parse_columns(head: pa.StringArray, comment: pa.StringArray, line: np.ndarray, count: LineCount) -> Lines | None:
    tokens = pc.ascii_split_whitespace(head)
    starts, words = tokens.offsets.to_numpy(), tokens.flatten()
    n_words = np.diff(starts)
    if (n_words < 2).any():
        return None
    labels, queries = words.take(pa.array(starts[:-1])), words.take(pa.array(starts[:-1] + 1))
    if not pc.all(pc.match_substring_regex(labels, rf"^{_LABEL.pattern}$")).as_py():
        return None
    if not pc.all(pc.match_substring_regex(queries, "^qid:.")).as_py():
        return None
    feature = np.ones(len(words), dtype=bool)
    feature[starts[:-1]] = feature[starts[:-1] + 1] = False
    names, values = _cut(words.filter(pa.array(feature)), b":")
    row = np.repeat(np.arange(len(head)), n_words - 2)
    expert = names.dictionary_encode()
    if not pc.all(pc.match_substring_regex(expert.dictionary, rf"^{_FEATURE.pattern}$"), min_count=0).as_py():
        return None
    if _repeats(row, pc.cast(expert.dictionary, pa.int64()).to_numpy()[expert.indices.to_numpy()]):
        return None
    listed = pc.not_equal(values, "NULL")
    rank = pc.cast(values.filter(listed), pa.float64())
    numbers = rank.to_numpy()
    if not (np.isfinite(numbers) & (numbers > 0)).all():
        return None
    item = pc.struct_field(pc.extract_regex(comment, _DOCID), [0])
    if item.null_count:
        number = pa.array(line + count.before).cast(pa.string())
        item = pc.coalesce(item, pc.binary_join_element_wise("L", number, ""))
    return Lines(
        query=pc.utf8_slice_codeunits(queries, 4),
        item=item,
        label=pc.cast(labels, pa.int32()),
        line=line,
        row=row[listed.to_numpy(zero_copy_only=False)],
        expert=expert.filter(listed),
        rank=rank,
    )


def _repeats(row: np.ndarray, feature: np.ndarray) -> bool:
    """Whether a row has a feature number twice."""
    if ((row[1:] > row[:-1]) | (feature[1:] > feature[:-1])).all():  # in order, as they nearly always are
        return False
    order = np.lexsort((feature, row))
    row, feature = row[order], feature[order]
    return bool(((row[1:] == row[:-1]) & (feature[1:] == feature[:-1])).any())


class _LineError(Exception):
    def __init__(self, found: str, expected: str) -> None:
        super().__init__(found)
        self.found, self.expected = found, expected


def _parse_lines(block: bytes, first_line: int, count: LineCount) -> Lines:
    """Parse the lines one by one, for blocks that ``_parse_block`` refused; names a bad line."""
    queries: list[str] = []
    items: list[str] = []
    labels, numbers, rows, experts, ranks = [], [], [], [], []
    for number, raw in enumerate(block.split(b"\n")[:-1], start=first_line):
        try:
            parsed = _parse_line(raw)
        except _LineError as bad:
            raise count.error(number, bad.found, bad.expected) from None
        if parsed is None:
            continue
        label, query, item, entries = parsed
        for expert, rank in entries:
            rows.append(len(items))
            experts.append(expert)
            ranks.append(rank)
        queries.append(query)
        items.append(item or f"L{number + count.before}")
        labels.append(label)
        numbers.append(number)
    return Lines(
        query=pa.array(queries, pa.string()),
        item=pa.array(items, pa.string()),
        label=pa.array(labels, pa.int32()),
        line=np.array(numbers, dtype=np.int64),
        row=np.array(rows, dtype=np.int64),
        expert=pa.array(experts, pa.string()).dictionary_encode(),
        rank=pa.array(ranks, pa.float64()),
    )


def _parse_line(raw: bytes) -> tuple[int, str, str | None, list[tuple[str, float]]] | None:
    """Label, query, item and entries of one line; None for a blank line or a comment."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise _LineError(f"byte 0x{raw[error.start]:02x} at column {error.start + 1}", "UTF-8 text") from None
    words = [word.decode() for word in raw.partition(b"#")[0].split()]  # at ASCII blanks only, as Arrow does
    if not words:
        return None
    if not _LABEL.fullmatch(words[0]):
        raise _LineError(f"label '{words[0]}'", "a whole number of at least 0")
    if len(words) < 2 or not re.fullmatch("qid:.+", words[1]):
        raise _LineError(f"'{words[1]}'" if len(words) > 1 else "the label alone", f"'qid:QUERY' as in {LINE_SHAPE}")
    seen: set[str] = set()
    entries = []
    for word in words[2:]:
        name, colon, value = word.partition(":")
        if not colon or not _FEATURE.fullmatch(name):
            raise _LineError(f"'{word}'", "FEATURE:RANK or FEATURE:NULL with a feature number from 1")
        if name in seen:
            raise _LineError(f"feature {name} twice", "each feature once in a line")
        seen.add(name)
        if value == "NULL":
            continue
        rank = float(value) if _NUMBER.fullmatch(value) else 0.0
        if not 0 < rank < float("inf"):
            raise _LineError(f"rank '{value}' of feature {name}", "a finite number above 0, or NULL")
        entries.append((name, rank))
    found = re.search(_DOCID, text.partition("#")[2])
    return int(words[0]), words[1][4:], found["item"] if found else None, entries


class LetorSource:
    """LETOR aggregation files; every file is a part. An item without a docid gets its line as id, "L17".

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "A1.txt"
    ...     _ = file.write_text("1 qid:7 1:3 2:NULL #docid = a\\n0 qid:7 1:1 2:5 #docid = b\\n")
    ...     [table.table.to_pylist() for table in LetorSource([file]).tables()][1][0]
    {'query': '7', 'expert': '1', 'item': 'a', 'rank': 3.0}
    """

    name = "letor"
    partition: Literal["query", "expert"] = "query"
    items_once = True

    def __init__(self, files: Sequence[str | Place]) -> None:
        self.files: tuple[Place, ...] = tuple(place(file) for file in files)
        self._span: Span | None = None

    def split(self, size: int, whole: frozenset[str] = frozenset()) -> list[Source]:
        """Groups of small files, and spans of large ones whose items have docids (not line numbers)."""
        pieces: list[Source] = []
        for files, span in share_files(self.files, size, _has_docids):
            piece = copy.copy(self)
            piece.files, piece._span = files, span
            pieces.append(piece)
        return pieces

    def tables(self) -> Iterator[SourceTable]:
        """Per block of lines, its items and then its entries."""
        for file in self.files:
            n_items = 0
            for lines in read_lines(file, self._span):
                n_items += len(lines.item)
                query = lines.query.dictionary_encode()
                items = pa.table([lines.query, lines.item, lines.label], schema=ITEMS)
                entries = pa.table(
                    {
                        "query": query.take(pa.array(lines.row)),
                        "expert": lines.expert,
                        "item": lines.item.take(pa.array(lines.row)),
                        "rank": lines.rank,
                    }
                )
                yield SourceTable("items", items, file.name)
                yield SourceTable("entries", entries, file.name)
            if n_items == 0 and self._span is None:
                raise InputError(str(file), found="no items", expected=f"lines like {LINE_SHAPE}")

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """File and line of every mention of the item, by the expert or (None) of its label."""
        mentions = []
        for file in self.files:
            count = LineCount(file, self._span)
            for lines in read_lines(file, self._span):
                rows = np.flatnonzero(
                    pc.and_(pc.equal(lines.query, query), pc.equal(lines.item, item)).to_numpy(zero_copy_only=False)
                )
                if expert is not None and len(rows):
                    by_expert = pc.equal(lines.expert.cast(pa.string()), expert).to_numpy(zero_copy_only=False)
                    rows = rows[np.isin(rows, lines.row[by_expert])]
                mentions += [(str(file), int(line) + count.before) for line in lines.line[rows]]
        return mentions


def _has_docids(file: Place) -> bool:
    """Whether the first line that is not blank has a docid."""
    with open_bytes(file) as stream:
        first = next((line for line in stream if line.strip()), b"")
    return re.search(_DOCID.encode(), first) is not None
