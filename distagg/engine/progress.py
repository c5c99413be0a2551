"""Progress of anything that takes over two seconds: a bar on a terminal, a line every 15 seconds elsewhere.

Both show how much is done, the rate, the time that remains, and the memory of this process.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TextIO

Progress = Callable[[int], None]

QUIET_SECONDS = 2.0  # print nothing before
LINE_SECONDS = 15.0  # between lines where there is no terminal
BAR_SECONDS = 0.1  # between two drawings of the bar
WIDTH = 24  # of the bar


def silent(done: int) -> None:
    """Ignore progress."""


@dataclass(slots=True)
class Meter:
    """Call it with the amount of work just done; it prints now and then.

    ``total`` is the amount of all work; 0 means unknown. Where it is only a bound (``at_most``) or an estimate, work
    may end before it or go on beyond it; beyond it, the amount done is shown without a share.
    """

    what: str
    total: int
    at_most: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    done: int = 0
    began: float = field(default_factory=lambda: time.monotonic())
    printed: float = 0.0
    drawn: int = 0  # columns of the line on the terminal

    def __call__(self, more: int) -> None:
        self.done += more
        now = time.monotonic()
        live = self.stream.isatty()
        if self.done == self.total:
            return
        if now - self.began < QUIET_SECONDS or now - self.printed < (BAR_SECONDS if live else LINE_SECONDS):
            return
        self.printed = now
        if live:
            self._draw(self._bar(now - self.began))
        else:
            self.stream.write(self._line(now - self.began) + "\n")
        self.stream.flush()

    def _line(self, elapsed: float) -> str:
        known = self.done < self.total
        amount = f"{self.done:,} of {self.total:,} ({self.done / self.total:.0%})" if known else f"{self.done:,}"
        return f"{self.what}: {', '.join([amount, *self._pace(elapsed)])}"

    def _bar(self, elapsed: float) -> str:
        if self.done >= self.total:
            return self._line(elapsed)
        share = self.done / self.total
        bar = ("#" * round(WIDTH * share)).ljust(WIDTH, "-")
        return f"{self.what} [{bar}] {share:4.0%}, {', '.join(self._pace(elapsed))}"

    def _pace(self, elapsed: float) -> list[str]:
        """Rate, remaining time and memory, those that are known."""
        rate = self.done / elapsed if elapsed > 0 else 0.0
        parts = [f"{rate_text(rate)}/s"] if rate > 0 else []
        if rate > 0 and self.done < self.total:
            left = time_text((self.total - self.done) / rate)
            parts.append(f"at most {left} left" if self.at_most else f"{left} left")
        memory = resident_bytes()
        return [*parts, f"{memory / 1e9:.1f} GB"] if memory else parts

    def _draw(self, text: str) -> None:
        """Write over the line, cut to the terminal's width so that it stays one line."""
        text = text[: max(shutil.get_terminal_size().columns - 1, 20)]
        self.stream.write("\r" + text.ljust(self.drawn))
        self.drawn = len(text)

    def close(self) -> None:
        if self.drawn:
            self.stream.write("\r" + " " * self.drawn + "\r")
            self.stream.flush()


@contextmanager
def metered(what: str, total: int, *, at_most: bool = False) -> Iterator[Meter]:
    """A meter that clears its line on the terminal at the end."""
    meter = Meter(what, total, at_most)
    try:
        yield meter
    finally:
        meter.close()


def time_text(seconds: float) -> str:
    """A time as people say it.

    >>> time_text(98.4), time_text(400), time_text(7500), time_text(400_000)
    ('98 s', '7 min', '2 h 5 min', '4 d 15 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def rate_text(rate: float) -> str:
    """A rate with three digits, and a letter for thousands and millions.

    >>> rate_text(0.0123), rate_text(12.34), rate_text(4321), rate_text(1_234_567)
    ('0.0123', '12.3', '4.32k', '1.23M')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g}{letter}"
    return f"{rate:.3g}"


def resident_bytes() -> int:
    """The memory that this process uses now; the most it has used where the system does not say; 0 if unknown."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", encoding="ascii") as file:
        import resource

        return int(file.read().split()[1]) * resource.getpagesize()
    with suppress(ImportError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return 0
