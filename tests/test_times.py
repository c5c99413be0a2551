"""Times of pairs: dates, epochs, spans."""

import datetime

import pyarrow as pa
import pytest

from distagg.errors import UsageError
from distagg.times import parse_times, span_of, time_of, time_text

NOON = int(datetime.datetime(2026, 3, 31, 12, tzinfo=datetime.UTC).timestamp())


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["2026-03-31T12:00:00"]),
        pa.array(["2026-03-31 14:00:00+02:00"]),
        pa.array([str(NOON)]),
        pa.array([f"{NOON}000"]),
        pa.array([NOON]),
        pa.array([float(NOON)]),
        pa.array([NOON * 1000]),
        pa.array([NOON], pa.timestamp("s")),
        pa.array([NOON * 10**9], pa.timestamp("ns", "Europe/Berlin")),
        pa.array(["2026-03-31T12:00:00Z"]).dictionary_encode(),
    ],
)
def test_one_moment_in_many_forms(values):
    assert parse_times(values).cast(pa.int64()).to_pylist() == [NOON * 10**6]


def test_a_date_is_its_midnight():
    days = pa.array([datetime.date(2026, 3, 31)])
    assert parse_times(days) == parse_times(pa.array(["2026-03-31"])) == parse_times(pa.array([NOON - 12 * 3600]))


@pytest.mark.parametrize("value", ["31.3.2026", "2026-02-30", "yesterday", "2026", "20260331", "", None, "nan", "-5"])
def test_what_is_no_time_is_refused(value):
    with pytest.raises(pa.ArrowInvalid):
        parse_times(pa.array([value], pa.string()))


def test_truth_values_and_times_of_day_are_no_times():
    for values in (pa.array([True]), pa.array([datetime.time(12)])):
        with pytest.raises(pa.ArrowInvalid):
            parse_times(values)


def test_texts_of_options():
    assert time_of(" 2026-03-31T12:00Z", "since") == NOON * 10**6
    with pytest.raises(UsageError, match="--since: found 'soon', expected a date such as 2026-03-31"):
        time_of("soon", "--since")
    assert [span_of(text, "half_life") // 10**6 for text in ("90s", "1.5h", "2d", "1 w")] == [90, 5400, 172800, 604800]
    for text in ("", "0d", "-1d", "3", "2m"):
        with pytest.raises(UsageError, match="half_life: found"):
            span_of(text, "half_life")


@pytest.mark.parametrize("text", ["2026-03-31", "2026-03-31T12:00:00Z", "1969-12-31T23:59:59.250000Z"])
def test_text_and_back(text):
    assert time_text(time_of(text, "")) == text
