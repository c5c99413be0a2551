"""Mutations of inputs: of bytes, of JSON values, and of Arrow tables that become Parquet files."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

LARGEST = 1 << 18  # bytes of an input
WORDS = (
    b"", b"0", b"-1", b"1", b"+1", b"1.", b".5", b"1e5", b"1E+400", b"-0.0", b"nan", b"NaN", b"inf", b"-inf", b"NULL",
    b"null", b"true", b"false", b"0x10", b"1_000", b"2147483648", b"-2147483649", b"9223372036854775808", b"1e-400",
    b"007", b"\xef\xbb\xbf", b"\xef\xbb\xbf\xef\xbb\xbf", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xc2\xa0",
    b"\xe2\x80\xa8", b"\xc2\x85", b"\x00", b"\x0b", b"\x0c", b"\x1c", b"\x1b[2J", b"\r", b"\r\n", b"\n", b"\n\n",
    b" ", b"  ", b"\t", b"\t\t", b'"', b'""', b"'", b"\\", b",", b",,", b";", b":", b"::", b"|", b"#", b"=", b"{",
    b"}", b"[", b"]", b"(", b")", b"qid:", b"qid:7", b"#docid = a", b"1:3", b"2:NULL", b"Q0", b"nan,", b"\xd9\xa3",
    b"99999999999999999999999999", b"0.1e", b"--1", b"1 2", b"../x", b"/dev/null", b"%00", b"{1,2}", b"\\u0000",
    b"\\ud800", b"not", b"and", b"or", b"in", b"age", b"2026-03-31", b"2026-13-31T25:00:00Z",
    b"# NUMBER ALTERNATIVES: ",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "x",
    "0", "../../x", "/etc/passwd", "\x00", "\ud800", "\x1b[2J", "a" * 300, [], {}, [None], {"x": 1}, [[]], "rrf",
)  # fmt: skip
_FIELD = re.compile(rb"[^\s,:|=(){}\[\]\"]+")


def mutated(draw: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    """A few random changes of the bytes."""
    changed = bytearray(body)
    for _ in range(1 + min(int(draw.expovariate(0.7)), 8)):
        draw.choice(_CHANGES)(draw, changed, others)
        if len(changed) > LARGEST:
            del changed[LARGEST:]
    return bytes(changed)


def _span(draw: random.Random, body: bytearray) -> tuple[int, int]:
    start = draw.randrange(len(body) + 1)
    return start, min(len(body), start + int(draw.expovariate(0.15)))


def _flip(draw: random.Random, body: bytearray, others: Sequence[bytes]) -> None:
    if body:
        body[draw.randrange(len(body))] ^= 1 << draw.randrange(8)


def _cut(draw: random.Random, body: bytearray, others: Sequence[bytes]) -> None:
    start, stop = _span(draw, body)
    del body[start:stop]


def _truncate(draw: random.Random, body: bytearray, others: Sequence[bytes]) -> None:
    del body[draw.randrange(len(body) + 1) :]


def _repeat(draw: random.Random, body: bytearray, others: Sequence[bytes]) -> None:
    start, stop = _span(draw, body)
    times = draw.choice((1, 2, 3, 10, 100 if draw.random() < 0.9 else 10_000))
    body[start:start] = (bytes(body[start:stop]) * times)[:LARGEST]


def _insert(draw: random.Random, body: bytearray, others: Sequence[bytes]) -> None:
    at = draw.randrange(len(body) + 1)
    body[at:at] = draw.choice(WORDS)


def _replace_field(draw: random.Random, body: bytearray, others: Sequence[bytes]) -> None:
    fields = list(_FIELD.finditer(bytes(body[:8192])))
    if fields:
        field = draw.choice(fields)
        body[field.start() : field.end()] = draw.choice(WORDS)


def _swap_fields(draw: random.Random, body: bytearray, others: Sequence[bytes]) -> None:
    fields = list(_FIELD.finditer(bytes(body[:8192])))
    if len(fields) > 1:
        one, other = sorted(draw.sample(fields, 2), key=lambda field: field.start())
        body[other.start() : other.end()] = one[0]
        body[one.start() : one.end()] = other[0]


def _move_line(draw: random.Random, body: bytearray, others: Sequence[bytes]) -> None:
    lines = bytes(body).split(b"\n")
    line = draw.choice(lines)
    lines.insert(draw.randrange(len(lines) + 1), line)
    if draw.random() < 0.5:
        lines.remove(line)
    body[:] = b"\n".join(lines)


def _splice(draw: random.Random, body: bytearray, others: Sequence[bytes]) -> None:
    other = draw.choice(others)
    start, stop = _span(draw, bytearray(other))
    at = draw.randrange(len(body) + 1)
    body[at:at] = other[start:stop]


_CHANGES = (_flip, _cut, _truncate, _repeat, _insert, _insert, _replace_field, _replace_field, _swap_fields, _move_line,
            _splice)  # fmt: skip


def mutated_json(draw: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    """A few changes of the values of a JSON document; of its bytes, if it does not parse, and now and then."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return mutated(draw, body, others)
    if draw.random() < 0.2:
        return mutated(draw, body, others)
    for _ in range(1 + min(int(draw.expovariate(0.9)), 5)):
        value = _change_value(draw, value)
    try:
        text = json.dumps(value, indent=draw.choice((None, 1))).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError, MemoryError):
        return body
    return text if len(text) <= LARGEST else body


def _change_value(draw: random.Random, value: Any) -> Any:
    """One change somewhere in the value."""
    if not isinstance(value, dict | list) or not value or draw.random() < 0.1:
        return draw.choice(VALUES)
    key = draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
    fate = draw.random()
    if isinstance(value, dict) and fate < 0.08:
        return {name: inner for name, inner in value.items() if name != key}
    if isinstance(value, dict) and fate < 0.14:
        return {**value, draw.choice(("x", "", "path", "files", "schema", "model", "0")): draw.choice(VALUES)}
    if isinstance(value, list) and fate < 0.08:
        return value + [value[key]] * draw.choice((1, 100))
    if isinstance(value, list) and fate < 0.14:
        return value[:key] + value[key + 1 :]
    if isinstance(value, dict):
        return {**value, key: _change_value(draw, value[key])}
    return [*value[:key], _change_value(draw, value[key]), *value[key + 1 :]]


COLUMNS: tuple[pa.Array, ...] = (
    pa.array(["a", "b", "c"]),
    pa.array(["a", "a", None]),
    pa.array(["", "b", "\x1b[2J"]),
    pa.array(["a", "b", "c"], pa.large_string()),
    pa.array(["a", "b", "a"]).dictionary_encode(),
    pa.array([None, "b", "a"]).dictionary_encode(),
    pa.array([b"a", b"\xff", b"c"]),
    pa.array([b"\xff\xfe", b"b", b"c"]).view(pa.string()),
    pa.array([1, 2, 3]),
    pa.array([1, 2, 3], pa.uint64()),
    pa.array([0, -2, 2**62]),
    pa.array([1, None, 3], pa.int8()),
    pa.array([1.5, 2.0, 3.0]),
    pa.array([1.0, float("nan"), float("inf")]),
    pa.array([1, 2, 3], pa.decimal128(38, 10)),
    pa.array([True, False, None]),
    pa.nulls(3),
    pa.array([1_700_000_000, 1_700_000_001, 2], pa.timestamp("s", "UTC")),
    pa.array([-(2**62), 0, 2**62], pa.timestamp("ns")),
    pa.array([10, 20, 30], pa.date32()),
    pa.array([10, 20, 30], pa.time64("us")),
    pa.array([[1], [], None]),
    pa.array([{"x": 1}, {"x": None}, None]),
    pa.array([{}, {}, None], pa.struct([])),
    pa.array([1, 2, 3], pa.duration("s")),
    pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    pa.array(["model_a", "model_b", "tie"]),
    pa.array(["a", "b", "c"], pa.string_view()),
    pa.array([[0, 1], [1, 0], [0]], pa.list_(pa.int32())),
    pa.array([[0, 2_000_000_000], [-5, 1], []], pa.list_(pa.int32())),
    pa.array([[0, 0], [None], None], pa.list_(pa.int32())),
    pa.array([[1.0, 2.0], [2.0, 1.0], [1.0]], pa.list_(pa.float64())),
    pa.array([[1.0, float("nan")], [-1.0, 2.0], [0.5]], pa.list_(pa.float64())),
    pa.array([0, 1, 2], pa.int32()),
    pa.array([2, 1, -7], pa.int32()),
)


def mutated_parquet(draw: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    """The table with other columns, types and rows; now and then a change of the bytes themselves."""
    if draw.random() < 0.4:
        return mutated(draw, body, others)
    try:
        table = pq.read_table(io.BytesIO(body))
        names = table.column_names
    except (OSError, pa.ArrowException, ValueError):
        return mutated(draw, draw.choice(others), others)
    rows = draw.choice((0, 1, 2, 3, 3, 3))
    columns = {name: pa.concat_arrays(column.chunks)[:rows] if column.num_chunks else column.combine_chunks()
               for name, column in zip(names, table.columns, strict=True)}  # fmt: skip
    rows = min([rows, *(len(column) for column in columns.values())])
    for _ in range(draw.randrange(1, 4)):
        name = draw.choice([*columns, "label", "score", "time", "", "x", "expert.name", "__index_level_0__"])
        fate = draw.random()
        if fate < 0.15:
            columns.pop(name, None)
        else:
            columns[name] = draw.choice(COLUMNS)
    sink = io.BytesIO()
    try:
        made = pa.table({name: column[:rows] for name, column in columns.items()})
        pq.write_table(made, sink, row_group_size=draw.choice((1, 2, 1000)), compression=draw.choice(("none", "zstd")))
    except (pa.ArrowException, ValueError):
        return mutated(draw, body, others)
    return sink.getvalue()


def mutated_gzip(draw: random.Random, body: bytes, others: Sequence[bytes]) -> bytes:
    """A change of the packed bytes, or of the text."""
    if draw.random() < 0.5:
        return mutated(draw, body, others)
    try:
        text = gzip.decompress(body)
    except (OSError, EOFError, ValueError, ArithmeticError):
        return mutated(draw, draw.choice(others), others)
    except Exception:  # zlib's own
        return mutated(draw, draw.choice(others), others)
    return gzip.compress(mutated(draw, text, others), 1)
