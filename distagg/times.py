"""Times of pairs: dates and epochs as microseconds since 1970 (UTC), and spans of time such as ``90d``.

A time without a zone is UTC. A number is seconds since 1970, or milliseconds from 10**11 on; numbers below 10**8 (3
March 1973) are refused, because they are more likely years, days or positions.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_arrow, as_numpy, one_array
from distagg.errors import UsageError
from distagg.types import TIMESTAMP, Times

EXPECTED_TIME = "a date such as 2026-03-31 or 2026-03-31T14:05:00Z, or seconds or milliseconds since 1970"
SECOND = 1_000_000  # microseconds
SPANS = {"s": SECOND, "h": 3_600 * SECOND, "d": 86_400 * SECOND, "w": 7 * 86_400 * SECOND}
LONGEST_SPAN = 10_000 * 366 * 86_400 * SECOND  # ten thousand years
_SPAN = re.compile(r"(?P<count>\d+(\.\d*)?)\s*(?P<unit>[shdw])")
_LEAST_SECONDS, _LEAST_MILLISECONDS, _LEAST_MICROSECONDS = 1e8, 1e11, 1e14
_ZONE = r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$"


def parse_times(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Dates, timestamps, text or numbers as timestamps; ArrowInvalid for anything else, and for an empty cell.

    >>> parse_times(pa.array(["2026-03-31", "2026-03-31T02:00:00+02:00"])).cast(pa.int64()).to_pylist()
    [1774915200000000, 1774915200000000]
    >>> parse_times(pa.array([1774915200.5, 1774915200500])).cast(pa.int64()).to_pylist()
    [1774915200500000, 1774915200500000]
    """
    values = one_array(values)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if values.null_count:
        raise pa.ArrowInvalid("empty cell")
    if pa.types.is_temporal(values.type):
        return _utc(values)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type):
        return _of_text(pc.ascii_trim_whitespace(values.cast(pa.string())))
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        return _of_numbers(as_numpy(values.cast(pa.float64())))
    raise pa.ArrowInvalid(f"type {values.type}")


def _utc(values: pa.Array) -> pa.Array:
    """Dates and timestamps as timestamps in UTC; finer parts than microseconds are cut off."""
    if not (pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)):
        raise pa.ArrowInvalid(f"type {values.type}")
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        return values.cast(TIMESTAMP, safe=False)
    return values.cast(pa.timestamp("us"), safe=False).cast(TIMESTAMP)


def _of_text(words: pa.Array) -> pa.Array:
    """Numbers written as text, and ISO dates with and without a zone."""
    number = as_numpy(pc.match_substring_regex(words, r"^[+-]?[0-9.]+([eE][+-]?\d+)?$"))
    zoned = as_numpy(pc.match_substring_regex(words, _ZONE))
    parsed = np.zeros(len(words), dtype=np.int64)
    if number.any():
        parsed[number] = _microseconds(as_numpy(words.filter(as_arrow(number)).cast(pa.float64())))
    if (zoned & ~number).any():
        parsed[zoned] = as_numpy(words.filter(as_arrow(zoned)).cast(TIMESTAMP).cast(pa.int64()))
    plain = ~(number | zoned)
    if plain.any():
        parsed[plain] = as_numpy(words.filter(as_arrow(plain)).cast(pa.timestamp("us")).cast(pa.int64()))
    return as_arrow(parsed).cast(TIMESTAMP)


def _of_numbers(numbers: np.ndarray) -> pa.Array:
    return as_arrow(_microseconds(numbers)).cast(TIMESTAMP)


def _microseconds(numbers: np.ndarray) -> Times:
    """Seconds, milliseconds or microseconds since 1970 as microseconds."""
    if not (np.isfinite(numbers) & (numbers >= _LEAST_SECONDS) & (numbers < 1e17)).all():
        raise pa.ArrowInvalid("number out of range")
    scale = np.where(numbers < _LEAST_MILLISECONDS, 1e6, np.where(numbers < _LEAST_MICROSECONDS, 1e3, 1.0))
    return np.rint(numbers * scale).astype(np.int64)


def time_of(text: str, option: str) -> int:
    """One time, as users write it in an option, in microseconds since 1970; a UsageError names the option.

    >>> time_of("2026-03-31", "--since")
    1774915200000000
    """
    try:
        return int(as_numpy(_of_text(pa.array([text.strip()], pa.string())).cast(pa.int64()))[0])
    except pa.ArrowInvalid:
        raise UsageError(f"{option}: found '{text}', expected {EXPECTED_TIME}") from None


def span_of(text: str, option: str) -> int:
    """A span of time such as ``36h``, ``90d`` or ``2w``, in microseconds.

    >>> span_of("90d", "half_life") == 90 * 24 * 3600 * 10**6
    True
    """
    match = _SPAN.fullmatch(text.strip())
    span = float(match["count"]) * SPANS[match["unit"]] if match else 0.0
    if not 0.5 < span <= LONGEST_SPAN:
        raise UsageError(f"{option}: found '{text}', expected a span of time above 0 such as 90d (units s, h, d, w)")
    return round(span)


def time_text(time: int) -> str:
    """A time as ISO text, without what is zero.

    >>> time_text(1774915200000000), time_text(1774915200500000)
    ('2026-03-31', '2026-03-31T00:00:00.500000Z')
    """
    moment = datetime.fromtimestamp(time // SECOND, UTC).replace(microsecond=time % SECOND)
    if time % SPANS["d"] == 0:
        return moment.date().isoformat()
    return moment.replace(tzinfo=None).isoformat() + "Z"
