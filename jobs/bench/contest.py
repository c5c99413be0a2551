"""Contestants in processes of their own, timed by turns, so that all of them meet the same machine."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

MODELS = ("rrf", "borda", "borda average", "median", "condorcet", "mc4", "combsum", "combmnz")
PEERS = ("pandas", "polars", "ranx", "pyflagr")
SERVE = Path(__file__).parent / "peers" / "serve.py"


@dataclass(frozen=True)
class Spread:
    """Seconds of several calls."""

    median: float
    least: float
    most: float
    calls: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        return cls(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


class Player:
    """A contestant's process; see peers/serve.py for what it understands."""

    def __init__(self, python: str, module: str, folder: Path) -> None:
        self.name = module.removeprefix("with_")
        self.command = [python, str(SERVE), module, str(folder)]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.cases: list[str] = self.ask("cases")["cases"]

    def __enter__(self) -> Player:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def ask(self, do: str, **words: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps({"do": do, **words}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended while asked to {do} {words}; its message is above")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def rows(self, case: str, file: Path) -> dict[str, list[Any]]:
        """The contestant's answer."""
        self.ask("rows", case=case, file=str(file))
        answer: dict[str, list[Any]] = json.loads(file.read_text())
        file.unlink()
        return answer

    def whole_seconds(self, case: str, env: Mapping[str, str] | None = None) -> float:
        """Wall time of a fresh process that imports, reads, computes and ends."""
        start = time.perf_counter()
        subprocess.run([*self.command, "--once", case], env=os.environ | dict(env or {}), check=True)
        return time.perf_counter() - start


@dataclass(frozen=True)
class Field:
    """Who takes part: the peers, in which interpreter, with which models."""

    python: str
    peers: tuple[str, ...] = PEERS
    models: tuple[str, ...] = MODELS

    def players(self, folder: Path) -> list[Player]:
        return [Player(self.python, f"with_{peer}", folder) for peer in self.peers]


@dataclass
class Slot:
    """Something to be timed: a player, a case, and what to do with it ("compute", "read" or "whole")."""

    player: Player
    case: str
    do: str
    env: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def take_turn(self) -> None:
        if self.do == "whole":
            self.seconds.append(self.player.whole_seconds(self.case, self.env))
        else:
            self.seconds += self.player.ask(self.do, case=self.case)["seconds"]

    @property
    def spread(self) -> Spread:
        return Spread.of(self.seconds)


def play(slots: Sequence[Slot], rounds: int, budget: float) -> None:
    """Turns by turns. A slot that has used up its budget (seconds) rests; ours never does, being compared with all."""
    for _ in range(rounds):
        for slot in slots:
            if slot.player.name == "ours" or sum(slot.seconds) < budget:
                slot.take_turn()
