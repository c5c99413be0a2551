"""Rounds of map, reduce and finish over chunks, without an engine."""

from __future__ import annotations

from typing import Any

from distagg.dataset.chunk import Chunk
from distagg.models.rounds import Stage


def run(stage: Any, pieces: list[Chunk], *, right: bool = False) -> Any:
    """The result of the rounds from a first stage, reducing from the left or from the right."""
    while isinstance(stage, Stage):
        sent = stage.sent()
        statistics = [sent.map(piece) for piece in pieces]
        while len(statistics) > 1:
            at = len(statistics) - 2 if right else 0
            statistics[at : at + 2] = [stage.reduce(statistics[at], statistics[at + 1])]
        stage = stage.finish(statistics[0])
    return stage
