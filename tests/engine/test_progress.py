"""Progress is calm: nothing when it is quick, a line now and then, a bar on a terminal."""

import io

import pytest

from distagg.engine import progress
from distagg.engine.progress import Meter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_quick_work_is_silent(clock: list[float]) -> None:
    stream = io.StringIO()
    meter = Meter("rank", 10, stream)
    for _ in range(10):
        clock[0] += 0.1
        meter(1)
    meter.close()
    assert stream.getvalue() == ""


def test_long_work_says_a_line_now_and_then(clock: list[float]) -> None:
    stream = io.StringIO()
    meter = Meter("rank", 100, stream)
    for _ in range(100):
        clock[0] += 1.0
        meter(1)
    lines = stream.getvalue().splitlines()
    assert 4 <= len(lines) <= 8
    assert lines[0] == "rank: 2 of 100 (2%), 98 s left"


def test_a_terminal_gets_a_bar_that_goes_away(clock: list[float]) -> None:
    stream = Terminal()
    meter = Meter("rank", 4, stream)
    for _ in range(3):
        clock[0] += 3.0
        meter(1)
    meter.close()
    assert "[########" in stream.getvalue()
    assert stream.getvalue().endswith("\r")


def test_an_unknown_total_is_counted(clock: list[float]) -> None:
    stream = io.StringIO()
    meter = Meter("import", 0, stream)
    clock[0] += 5.0
    meter(1000)
    assert stream.getvalue() == "import: 1,000\n"
