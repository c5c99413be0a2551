"""Progress on anything over two seconds: a bar on a terminal, one calm line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

Progress = Callable[[int], None]

PATIENCE = 2.0  # say nothing before this many seconds
CALM = 15.0  # seconds between lines where there is no terminal
WIDTH = 30


def silent(done: int) -> None:
    """No progress."""


@dataclass(slots=True)
class Meter:
    """Call it with how much more is done; it decides whether to say so. A total of 0 is an unknown one."""

    what: str
    total: int
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    done: int = 0
    began: float = field(default_factory=lambda: time.monotonic())
    said: float = 0.0

    def __call__(self, more: int) -> None:
        self.done += more
        now = time.monotonic()
        live = self.stream.isatty()
        if 0 < self.total <= self.done:
            return
        if now - self.began < PATIENCE or now - self.said < (0.1 if live else CALM):
            return
        self.said = now
        if not self.total:
            self.stream.write(f"\r{self.what}: {self.done:,}   " if live else f"{self.what}: {self.done:,}\n")
            self.stream.flush()
            return
        share = self.done / self.total
        left = (now - self.began) * (1 / share - 1) if share > 0 else float("inf")
        ahead = f", {left:.0f} s left" if left < 1e6 else ""
        if live:
            bar = ("#" * round(WIDTH * share)).ljust(WIDTH, "-")
            self.stream.write(f"\r{self.what} [{bar}] {share:4.0%}{ahead}   ")
        else:
            self.stream.write(f"{self.what}: {self.done:,} of {self.total:,} ({share:.0%}){ahead}\n")
        self.stream.flush()

    def close(self) -> None:
        if self.said and self.stream.isatty():
            self.stream.write("\r" + " " * 78 + "\r")
            self.stream.flush()


@contextmanager
def metered(what: str, total: int) -> Iterator[Meter]:
    """A meter that leaves the terminal clean."""
    meter = Meter(what, total)
    try:
        yield meter
    finally:
        meter.close()
