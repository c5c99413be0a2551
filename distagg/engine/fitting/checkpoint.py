"""Checkpoints of training: arrays in Parquet under the hash of their bytes, the two newest kept.

Training offers its state after every round; every so many rounds or seconds it is saved, and once more when the driver
is told to stop. A state is all that the next round depends on, so a resumed training gives the same bits. A damaged
checkpoint is known by its hash, said and passed over for the one before.
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

KEPT = 2
_NAME = re.compile(r"round-(\d+)-([0-9a-f]{16})\.parquet")


class Keeper(Protocol):
    """Whoever keeps the state of training."""

    def load(self) -> Params | None:
        """The newest state that was kept, or None to start afresh."""
        ...

    def offer(self, number: int, state: Params) -> None:
        """The state after a round, to be saved or not."""
        ...

    def flush(self) -> None:
        """Save the last state offered."""
        ...


def nothing_said(event: str, **about: Any) -> None:
    """No events."""


@dataclass(slots=True)
class Checkpoints:
    """Checkpoints in a folder; ``say`` is told of every one saved, resumed from or found damaged."""

    folder: Path
    rounds: int = 10
    seconds: float = 30.0
    say: Callable[..., None] = nothing_said
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
        pq.write_table(params_table(state), sink)
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
        found = [(_NAME.fullmatch(file.name), file) for file in self.folder.iterdir()]
        return sorted((int(match.group(1)), file) for match, file in found if match)


class NoKeeper:
    """Nothing is kept."""

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
    """Several groups of arrays as one: ``group/name``."""
    return {f"{group}/{name}": array for group, arrays in groups.items() for name, array in arrays.items()}


def unpacked(state: Params, group: str) -> Params:
    """A group of a packed state."""
    return {key.partition("/")[2]: array for key, array in state.items() if key.startswith(f"{group}/")}
