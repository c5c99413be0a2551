"""pyflagr. It takes a file and writes a file, so ``compute`` holds its reading of a CSV and all of it is one case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyflagr import Linear, Majoritarian, MarkovChains

METHODS: dict[str, Any] = {
    "borda": lambda: Linear.SimpleBordaCount(),
    "borda average": lambda: Linear.BordaCount(),
    "condorcet": lambda: Majoritarian.CondorcetWinners(),
    "mc4": lambda: MarkovChains.MC4(eval_pts=10),
    "combsum": lambda: Linear.CombSUM(norm="rank"),
    "combmnz": lambda: Linear.CombMNZ(norm="rank"),
}


class Contestant:
    cases = tuple(METHODS)

    def __init__(self, folder: Path) -> None:
        self.file = folder / "flat.csv"

    def load(self) -> None:
        """Nothing: it reads its file each time."""

    def warm(self, case: str) -> None:
        """Nothing: it is compiled."""

    def compute(self, case: str) -> Any:
        rankings, _ = METHODS[case]().aggregate(input_file=str(self.file))
        if not len(rankings):
            raise RuntimeError(f"pyflagr ranked nothing of {self.file}")
        return rankings

    read = whole = compute

    def rows(self, result: Any) -> dict[str, list[Any]]:
        return {"item_id": result["ItemID"].tolist()}
