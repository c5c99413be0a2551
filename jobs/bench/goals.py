"""What was aimed at, and a table of how it came out: what was missed or lost stands first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from contest import Spread

AHEAD = 1.0
FRAMES = ("pandas", "polars")
POSITIONAL = ("rrf", "borda", "borda average", "median")
MAJORITIES = ("condorcet", "mc4")
STAGES = {
    "compute": "compute (in memory, compiled)",
    "read": "with reading",
    "whole": "everything a user pays (a fresh process)",
}


def goal(stage: str, model: str, peer: str) -> float:
    """How many times faster we want to be."""
    if stage == "compute" and model in POSITIONAL:
        return 5.0 if peer in FRAMES else 500.0
    if stage == "compute" and model in MAJORITIES:
        return 300.0
    return AHEAD


@dataclass(frozen=True)
class Row:
    """One case against one peer."""

    data: str
    stage: str
    model: str
    peer: str
    how: str  # what is special about the peer's case or ours
    ours: Spread
    theirs: Spread
    agreement: str

    @property
    def ratio(self) -> float:
        return self.theirs.median / self.ours.median

    @property
    def goal(self) -> float:
        return goal(self.stage, self.model, self.peer)

    @property
    def verdict(self) -> str:
        if self.ratio < AHEAD:
            return "LOST"
        return "met" if self.ratio >= self.goal else "MISSED"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio, "goal": self.goal, "verdict": self.verdict}


def worst_first(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.ratio / row.goal)


def print_rows(rows: Sequence[Row]) -> None:
    """A table for each stage: every miss, then the rest, each by how far it is from its goal."""
    for stage, title in STAGES.items():
        of_stage = worst_first(row for row in rows if row.stage == stage)
        if not of_stage:
            continue
        missed = sum(row.verdict != "met" for row in of_stage)
        cells = [
            [
                row.verdict, f"{row.ratio:,.1f}x", f"{row.goal:g}x", row.model, f"{row.peer} {row.how}".strip(),
                row.data, _milliseconds(row.ours), _milliseconds(row.theirs), row.agreement,
            ]
            for row in of_stage
        ]  # fmt: skip
        print(f"\n{title}: {missed} of {len(of_stage)} missed; milliseconds, median (least-most)")
        print_table(["", "faster", "goal", "model", "peer", "data", "ours", "theirs", "same answer"], cells)


def print_table(head: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    widths = [max(len(line[at]) for line in [head, *cells]) for at in range(len(head))]
    for line in [head, *cells]:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def _milliseconds(spread: Spread) -> str:
    median, least, most = (_short(seconds * 1e3) for seconds in (spread.median, spread.least, spread.most))
    return f"{median} ({least}-{most})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
