"""Progress is calm: nothing when it is quick, a line now and then, a bar on a terminal."""

import io

import pytest

from distagg.engine import progress
from distagg.engine.progress import Meter, resident_bytes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "resident_bytes", lambda: 1_500_000_000)
    return now


def test_quick_work_is_silent(clock: list[float]) -> None:
    stream = io.StringIO()
    meter = Meter("rank", 10, stream=stream)
    for _ in range(10):
        clock[0] += 0.1
        meter(1)
    meter.close()
    assert stream.getvalue() == ""


def test_long_work_says_a_line_now_and_then(clock: list[float]) -> None:
    stream = io.StringIO()
    meter = Meter("rank", 100, stream=stream)
    for _ in range(100):
        clock[0] += 1.0
        meter(1)
    lines = stream.getvalue().splitlines()
    assert 4 <= len(lines) <= 8
    assert lines[0] == "rank: 2 of 100 (2%), 1/s, 98 s left, 1.5 GB"


def test_a_terminal_gets_a_bar_that_goes_away(clock: list[float]) -> None:
    stream = Terminal()
    meter = Meter("rank", 4, stream=stream)
    for _ in range(3):
        clock[0] += 3.0
        meter(1)
    meter.close()
    assert "rank [############------------]  50%, 0.333/s, 6 s left, 1.5 GB" in stream.getvalue()
    assert stream.getvalue().endswith("\r")


def test_an_unknown_total_is_counted(clock: list[float]) -> None:
    stream = io.StringIO()
    meter = Meter("import", 0, stream=stream)
    clock[0] += 5.0
    meter(1000)
    assert stream.getvalue() == "import: 1,000, 200/s, 1.5 GB\n"


def test_work_beyond_an_estimate_is_counted(clock: list[float]) -> None:
    stream = io.StringIO()
    meter = Meter("fit crf, chunks", 100, at_most=True, stream=stream)
    for _ in range(3):
        clock[0] += 20.0
        meter(60)
    assert stream.getvalue().splitlines() == [
        "fit crf, chunks: 60 of 100 (60%), 3/s, at most 13 s left, 1.5 GB",
        "fit crf, chunks: 120, 3/s, 1.5 GB",
        "fit crf, chunks: 180, 3/s, 1.5 GB",
    ]


def test_a_bar_stays_on_one_line_and_leaves_nothing_behind(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    meter = Meter("a step with a long name, rows", 1000, stream=stream)
    for more in (1, 998):
        clock[0] += 3.0
        meter(more)
    meter.close()
    drawn = stream.getvalue().split("\r")
    assert all(len(line) < 40 for line in drawn)
    assert drawn[-2].strip() == ""
    assert len(drawn[-2]) >= len(drawn[-3].rstrip())


def test_memory_is_told() -> None:
    assert resident_bytes() > 1_000_000
