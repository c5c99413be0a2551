"""Progress of anything that takes over two seconds: a bar on a terminal, a line every 15 seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

Progress = Callable[[int], None]

QUIET_SECONDS = 2.0  # print nothing before
LINE_SECONDS = 15.0  # between lines where there is no terminal
WIDTH = 30


def silent(done: int) -> None:
    """Ignore progress."""


@dataclass(slots=True)
class Meter:
    """Call it with the amount of work just done; it prints now and then. A total of 0 means unknown."""

    what: str
    total: int
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    done: int = 0
    began: float = field(default_factory=lambda: time.monotonic())
    printed: float = 0.0

    def __call__(self, more: int) -> None:
        self.done += more
        now = time.monotonic()
        live = self.stream.isatty()
        if 0 < self.total <= self.done:
            return
        if now - self.began < QUIET_SECONDS or now - self.printed < (0.1 if live else LINE_SECONDS):
            return
        self.printed = now
        if not self.total:
            self.stream.write(f"\r{self.what}: {self.done:,}   " if live else f"{self.what}: {self.done:,}\n")
            self.stream.flush()
            return
        share = self.done / self.total
        remaining = (now - self.began) * (1 / share - 1) if share > 0 else float("inf")
        estimate = f", {remaining:.0f} s left" if remaining < 1e6 else ""
        if live:
            bar = ("#" * round(WIDTH * share)).ljust(WIDTH, "-")
            self.stream.write(f"\r{self.what} [{bar}] {share:4.0%}{estimate}   ")
        else:
            self.stream.write(f"{self.what}: {self.done:,} of {self.total:,} ({share:.0%}){estimate}\n")
        self.stream.flush()

    def close(self) -> None:
        if self.printed and self.stream.isatty():
            self.stream.write("\r" + " " * 78 + "\r")
            self.stream.flush()


@contextmanager
def metered(what: str, total: int) -> Iterator[Meter]:
    """A meter that clears its line on the terminal at the end."""
    meter = Meter(what, total)
    try:
        yield meter
    finally:
        meter.close()
