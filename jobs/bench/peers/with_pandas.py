"""pandas: the one-liner that people write, on integer codes, and once on ids (strings) as they mostly have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

UNSORTED, STRINGS = " unsorted", " strings"
COLUMNS = {"rrf": ["rank"], "median": ["rank"], "borda": ["rank", "size"]}


class Contestant:
    cases = ("rrf", "rrf unsorted", "rrf strings", "borda", "borda unsorted", "median", "median unsorted")

    def __init__(self, folder: Path) -> None:
        self.file = folder / "flat.parquet"

    def load(self) -> None:
        self.frames = {case: self._frame(case) for case in self.cases}

    def warm(self, case: str) -> None:
        self.compute(case)

    def compute(self, case: str) -> Any:
        return aggregate(self.frames[case], case)

    def read(self, case: str) -> Any:
        return aggregate(self._frame(case), case)

    whole = read

    def rows(self, result: Any) -> dict[str, list[Any]]:
        return {name: result[name].tolist() for name in ("query", "item", "item_id") if name in result}

    def _frame(self, case: str) -> Any:
        model = case.removesuffix(UNSORTED).removesuffix(STRINGS)
        return pd.read_parquet(self.file, columns=[*_keys(case), *COLUMNS[model]])


def _keys(case: str) -> list[str]:
    return ["query_id", "item_id"] if case.endswith(STRINGS) else ["query", "item"]


def aggregate(frame: Any, case: str) -> Any:
    keys = _keys(case)
    if case.startswith("rrf"):
        scores = frame.assign(s=1 / (60 + frame["rank"])).groupby(keys, sort=False)["s"].sum()
    elif case.startswith("borda"):
        scores = frame.assign(s=frame["size"] - frame["rank"]).groupby(keys, sort=False)["s"].sum()
    else:
        scores = -frame.groupby(keys, sort=False)["rank"].median().rename("s")
    if case.endswith(UNSORTED):
        return scores
    return scores.reset_index().sort_values([keys[0], "s"], ascending=[True, False])
