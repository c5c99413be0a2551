"""distagg. ``compute`` is ``model.score`` and the ordering; cases that end in "ids" also make the table with ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CASES: dict[str, tuple[str, dict[str, Any]]] = {  # settings with which ours is the peers' problem
    "rrf": ("rrf", {}),
    "borda": ("borda", {}),
    "borda average": ("borda", {"unlisted": "average"}),
    "median": ("median", {"unlisted": "ignore"}),
    "condorcet": ("condorcet", {}),
    "mc4": ("mc4", {"teleport": 0.15}),
    "combsum": ("combsum", {}),
    "combmnz": ("combmnz", {}),
}
IDS = " ids"
LIMIT, FLAT_LIMIT = "limit", "flat limit"  # read only: two columns and nothing else


class Contestant:
    cases = (*CASES, *(case + IDS for case in CASES), LIMIT, FLAT_LIMIT)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "dataset"

    def load(self) -> None:
        from distagg.dataset import Dataset

        self.chunks = list(Dataset.open(self.path).chunks())

    def warm(self, case: str) -> None:
        if case not in (LIMIT, FLAT_LIMIT):
            self.compute(case)

    def compute(self, case: str) -> Any:
        from distagg.engine.rank import ranking_of
        from distagg.models.outcome import Outcome
        from distagg.rankings.ordering import order_items

        model = _model(case)
        scores = [model.score(chunk, {}) for chunk in self.chunks]
        if case.endswith(IDS):
            return [ranking_of(chunk, Outcome(own)) for chunk, own in zip(self.chunks, scores, strict=True)]
        return [
            (chunk.item_offsets, order_items(chunk.item_offsets, own), own)
            for chunk, own in zip(self.chunks, scores, strict=True)
        ]

    def read(self, case: str) -> Any:
        from distagg.dataset import Dataset
        from distagg.rankings.ordering import order_items

        if case in (LIMIT, FLAT_LIMIT):
            return self._read_columns(case)
        if case.endswith(IDS):
            return self.whole(case)
        model = _model(case)
        chunks = Dataset.open(self.path).chunks(ids=False)
        return [order_items(chunk.item_offsets, model.score(chunk, {})) for chunk in chunks]

    def whole(self, case: str) -> Any:
        import distagg

        return distagg.rank(_model(case), distagg.Dataset.open(self.path))

    def rows(self, result: Any) -> dict[str, list[Any]]:
        """The scores, one for each item in the dataset's order: the others' rankings are held against them."""
        return {"score": [score for _, _, scores in result for score in scores.tolist()]}

    def _read_columns(self, case: str) -> Any:
        import pyarrow.parquet as pq

        files = sorted(self.path.glob("lists-*.parquet")) if case == LIMIT else [self.folder / "flat.parquet"]
        return [pq.read_table(file, columns=["item", "rank"], use_threads=False) for file in files]


def _model(case: str) -> Any:
    from distagg.models import model_named

    name, settings = CASES[case.removesuffix(IDS)]
    return model_named(name, settings)
