"""ranx, on all cores: ``fuse`` of Runs that exist (compute), or Runs built from the flat file and fused (read)."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

warnings.filterwarnings("ignore")  # numba's, about ranx's integer casts

from ranx import Run, fuse  # noqa: E402

METHODS: dict[str, dict[str, Any]] = {
    "rrf": {"method": "rrf", "norm": None},
    "borda average": {"method": "bordafuse", "norm": None},
    "median": {"method": "med", "norm": None},
    "condorcet": {"method": "condorcet", "norm": None},
    "combsum": {"method": "sum", "norm": "rank"},
    "combmnz": {"method": "mnz", "norm": "rank"},
}
PAD = "_"  # ids of one length: ranx compiles again for every other length, and cannot fuse runs of different ones
WIDTH = 12
FEW = 3  # queries that are enough to compile


class Contestant:
    cases = tuple(METHODS)

    def __init__(self, folder: Path) -> None:
        self.file = folder / "flat.parquet"

    def load(self) -> None:
        lists = self._lists()
        few = sorted(lists[0])[:FEW]
        self.few = [Run({query: own[query] for query in few}) for own in lists]
        self.runs = [Run(own) for own in lists]

    def warm(self, case: str) -> None:
        fuse(self.few, **METHODS[case])

    def compute(self, case: str) -> Any:
        return fuse(self.runs, **METHODS[case])

    def read(self, case: str) -> Any:
        return fuse([Run(own) for own in self._lists()], **METHODS[case])

    whole = read

    def rows(self, result: Any) -> dict[str, list[Any]]:
        return {"item_id": [item.rstrip(PAD) for scores in result.run.values() for item in scores]}

    def _lists(self) -> list[dict[str, dict[str, float]]]:
        """For every expert, query to item to score; every query present, as ``fuse`` demands."""
        table = pq.read_table(self.file, columns=["query_id", "expert", "item_id", "rank"])
        query, expert, item, rank = (table[name].to_pylist() for name in table.column_names)
        width = max(WIDTH, *map(len, item))
        queries = list(dict.fromkeys(query))
        lists: list[dict[str, dict[str, float]]] = [{q: {} for q in queries} for _ in range(max(expert) + 1)]
        for q, e, i, r in zip(query, expert, item, rank, strict=True):
            lists[e][q][i.ljust(width, PAD)] = -r
        return lists
