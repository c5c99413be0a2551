"""Checkpoints of training: arrays in Parquet files named by the hash of their bytes; the two newest are kept.

Training offers its state after every round. A checkpoint is saved every ``rounds`` rounds or ``seconds`` seconds, and
once more when the driver is interrupted. The state contains everything that the next round depends on, so resumed
training gives the same bits. A checkpoint whose bytes do not match its hash is reported, deleted, and the previous one
is used.
"""

from __future__ import annotations

import hashlib
import io
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow.parquet as pq

from distagg.engine.saved import params_of, params_table
from distagg.models import Params
from distagg.storage.atomic import write_whole
from distagg.storage.parquet import CHECKSUMS

KEPT = 2
_NAME = re.compile(r"round-(\d+)-([0-9a-f]{16})\.parquet")


class Keeper(Protocol):
    """Stores the state of training."""

    def load(self) -> Params | None:
        """The newest stored state, or None to start from the beginning."""
        ...

    def offer(self, number: int, state: Params) -> None:
        """Receive the state after a round; may or may not save it."""
        ...

    def flush(self) -> None:
        """Save the state that was offered last."""
        ...


def no_events(event: str, **about: Any) -> None:
    """Ignore events."""


@dataclass(slots=True)
class Checkpoints:
    """Checkpoints in a folder; ``say`` is called for each one that is saved, resumed from or damaged."""

    folder: Path
    rounds: int = 10
    seconds: float = 30.0
    say: Callable[..., None] = no_events
    clock: Callable[[], float] = time.monotonic
    saved: int = 0
    saved_at: float = 0.0
    pending: tuple[int, Params] | None = field(default=None)

    def load(self) -> Params | None:
        self.saved_at = self.clock()
        for number, file in reversed(self._files()):
            body = file.read_bytes()
            if hashlib.sha256(body).hexdigest()[:16] == _NAME.fullmatch(file.name).group(2):  # type: ignore[union-attr]
                self.saved = number
                self.say("checkpoint resumed", round=number)
                return params_of(pq.read_table(io.BytesIO(body), use_threads=False))
            self.say("checkpoint damaged", round=number, file=file.name)
            file.unlink()
        return None

    def offer(self, number: int, state: Params) -> None:
        self.pending = (number, state)
        if number - self.saved >= self.rounds or self.clock() - self.saved_at >= self.seconds:
            self.flush()

    def flush(self) -> None:
        if self.pending is None or self.pending[0] == self.saved:
            return
        number, state = self.pending
        sink = io.BytesIO()
        pq.write_table(params_table(state), sink, **CHECKSUMS)
        body = sink.getvalue()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / f"round-{number:08d}-{hashlib.sha256(body).hexdigest()[:16]}.parquet", body)
        self.saved, self.saved_at = number, self.clock()
        self.say("checkpoint", round=number)
        for _, file in self._files()[:-KEPT]:
            file.unlink(missing_ok=True)

    def _files(self) -> list[tuple[int, Path]]:
        """Rounds and files of all checkpoints, the oldest first."""
        if not self.folder.is_dir():
            return []
        matches = [(_NAME.fullmatch(file.name), file) for file in self.folder.iterdir()]
        return sorted((int(match.group(1)), file) for match, file in matches if match)


class NoKeeper:
    """Stores nothing."""

    def load(self) -> Params | None:
        return None

    def offer(self, number: int, state: Params) -> None:
        pass

    def flush(self) -> None:
        pass


@contextmanager
def saving_on_stop(keeper: Keeper) -> Iterator[None]:
    """Save the last state when the block is interrupted (Ctrl-C, SIGTERM)."""
    try:
        yield
    except KeyboardInterrupt:
        keeper.flush()
        raise


def packed(**groups: Params) -> Params:
    """Join several groups of arrays into one, under names ``group/name``."""
    return {f"{group}/{name}": array for group, arrays in groups.items() for name, array in arrays.items()}


def unpacked(state: Params, group: str) -> Params:
    """One group of a packed state."""
    return {key.partition("/")[2]: array for key, array in state.items() if key.startswith(f"{group}/")}
