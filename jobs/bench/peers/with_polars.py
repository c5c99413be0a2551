"""polars: the same one-liners, eager and lazy, on all cores; once on ids (strings)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

UNSORTED, STRINGS, LAZY = " unsorted", " strings", " lazy"
MODELS = ("rrf", "borda", "median")
SCORES = {
    "rrf": (1 / (60 + pl.col("rank"))).sum().alias("s"),
    "borda": (pl.col("size") - pl.col("rank")).sum().alias("s"),
    "median": (-pl.col("rank").median()).alias("s"),
}
COLUMNS = {"rrf": ["rank"], "median": ["rank"], "borda": ["rank", "size"]}


class Contestant:
    cases = (*(model + how for model in MODELS for how in ("", UNSORTED, LAZY)), "rrf strings")

    def __init__(self, folder: Path) -> None:
        self.file = folder / "flat.parquet"

    def load(self) -> None:
        self.frames = {case: pl.read_parquet(self.file, columns=_columns(case)) for case in self.cases}

    def warm(self, case: str) -> None:
        self.compute(case)

    def compute(self, case: str) -> Any:
        return aggregate(self.frames[case], case)

    def read(self, case: str) -> Any:
        if case.endswith(LAZY):
            return _query(pl.scan_parquet(self.file), case).collect()
        return aggregate(pl.read_parquet(self.file, columns=_columns(case)), case)

    whole = read

    def rows(self, result: Any) -> dict[str, list[Any]]:
        return {name: result[name].to_list() for name in ("query", "item", "item_id") if name in result.columns}


def aggregate(frame: Any, case: str) -> Any:
    return _query(frame.lazy(), case).collect() if case.endswith(LAZY) else _query(frame, case)


def _query(frame: Any, case: str) -> Any:
    keys = _keys(case)
    scores = frame.group_by(keys).agg(SCORES[case.split()[0]])
    return scores if case.endswith(UNSORTED) else scores.sort(keys[0], "s", descending=[False, True])


def _keys(case: str) -> list[str]:
    return ["query_id", "item_id"] if case.endswith(STRINGS) else ["query", "item"]


def _columns(case: str) -> list[str]:
    return [*_keys(case), *COLUMNS[case.split()[0]]]
