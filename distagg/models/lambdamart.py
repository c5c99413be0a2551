"""lambdamart: boosted trees on what every expert's list says of an item. Burges 2010.

Trees are grown by LightGBM (an optional extra), and kept as plain arrays: ranking needs no LightGBM. They ask what an
expert won and lost, as the CRF does, and what a few models without labels say of the item.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.kernels.trees import add_trees
from distagg.models.base import Model, Params, param, sum_entries
from distagg.models.mpm import Mpm
from distagg.models.pairs import won_and_lost, won_and_lost_names
from distagg.models.positional import Borda, Rrf
from distagg.types import OFFSET, Floats, Offsets

PAIRS, RECIPROCAL = ("log", "binary"), 10.0
UNLABELLED = (Rrf(), Borda(), Mpm())
DIGITS = 6  # decimals of their scores: trees must not tell apart what rounding does
COMMON = (*(model.name for model in UNLABELLED), "lists")


@dataclass(frozen=True, kw_only=True)
class LambdaMart(Model):
    """Experts unseen in training are silent."""

    name: ClassVar[str] = "lambdamart"
    summary: ClassVar[str] = "boosted trees on every expert's list, grown by LightGBM (an extra) from labels"
    paper: ClassVar[str] = "Burges 2010; Ke et al. 2017"
    cost: ClassVar[str] = "entries + items x trees"
    supervised: ClassVar[bool] = True
    package: ClassVar[str] = "lightgbm"

    trees: Any = param(300, "trees to grow; those up to the best value on the validation queries are kept", least=1)
    leaves: Any = param(7, "leaves of a tree", least=2)
    rate: Any = param(0.05, "how much of each tree is added", above=0.0)
    least: Any = param(50, "items in a leaf, at least, or a hundredth of all where that is fewer", least=1)
    columns: Any = param(0.3, "share of the columns that a tree may ask", above=0.0)
    items: Any = param(0.7, "share of the items that a tree learns from", above=0.0)
    mode: Any = param(
        "serial",
        "serial (in one process: the same bits anywhere) or spread (over the workers of the cluster, by LightGBM's "
        "own Dask interface: for data that do not fit in one; bits follow the number of workers)",
        choices=("serial", "spread"),
    )
    plain: Any = param(False, "spread over several machines although LightGBM's own connections are not encrypted")
    seed: Any = param(0, "where random draws start from", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("columns", "items"):
            if getattr(self, key) > 1.0:
                found = getattr(self, key)
                raise UsageError(f"parameter {key} of {self.name}: found {found}, expected a share, at most 1")

    def dense(self, chunk: Chunk) -> Floats:
        """Features of every item, as trees are grown on: experts x columns, then COMMON, shape (I, F)."""
        values, common = _features(chunk)
        rows = np.zeros((chunk.n_items, chunk.n_experts, values.shape[1]))
        rows[chunk.entry_row(), np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))] = values
        return np.concatenate([rows.reshape(chunk.n_items, -1), common], axis=1)

    def score(self, chunk: Chunk, params: Params) -> Floats:
        score: Floats = self._walk(chunk, params, 1)[0]
        return score

    def stages(self, chunk: Chunk, params: Params) -> Floats:
        """Scores after each tree, shape (trees, I)."""
        return self._walk(chunk, params, len(params["tree_starts"]) - 1)

    def _walk(self, chunk: Chunk, params: Params, stages: int) -> Floats:
        values, common = _features(chunk)
        column, places, common_places, room = self._compact(chunk, params, values.shape[1])
        threshold, left, right = params["tree_nodes"][1:]
        expert = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
        score = np.zeros((stages, chunk.n_items))
        add_trees(
            params["tree_starts"].astype(OFFSET), column, threshold, left.astype(OFFSET), right.astype(OFFSET),
            chunk.item_offsets, chunk.entry_offsets[chunk.list_offsets], chunk.entry_item, expert, values, places,
            common, common_places, room, score,
        )  # fmt: skip
        return score

    def _compact(self, chunk: Chunk, params: Params, width: int) -> tuple[Offsets, Offsets, Offsets, Floats]:
        """Columns that trees ask, numbered anew: by node, by expert and column, of COMMON; and room for a query."""
        asked = params["tree_nodes"][0].astype(OFFSET)
        used = np.unique(asked[asked >= 0])
        number = np.full(int(params["tree_columns"][0]) + 1, -1, dtype=OFFSET)  # the last one is for leaves
        number[used] = np.arange(len(used))
        row = params["expert_row"]
        known = np.isfinite(row)
        places = np.full((chunk.n_experts, width), -1, dtype=OFFSET)
        places[known] = number[(row[known].astype(OFFSET) * width)[:, None] + np.arange(width)]
        longest = int(np.diff(chunk.item_offsets).max(initial=0))
        return number[asked], places, number[-1 - len(COMMON) : -1].copy(), np.zeros((longest, len(used)))


def column_names(experts: tuple[str, ...]) -> list[str]:
    """The columns of ``dense``."""
    names = won_and_lost_names(PAIRS, RECIPROCAL)[1:]
    return [f"{expert}:{name}" for expert in experts for name in names] + list(COMMON)


def _features(chunk: Chunk) -> tuple[Floats, Floats]:
    """What lists say of items, by entry, and what models without labels do, standardised in the query, by item."""
    scores = [np.round(standardised(chunk, model.score(chunk, {})), DIGITS) + 0.0 for model in UNLABELLED]
    lists = np.repeat(np.maximum(np.diff(chunk.list_offsets), 1), np.diff(chunk.item_offsets))
    share = sum_entries(chunk, np.ones(chunk.n_entries)) / lists
    values = won_and_lost(LambdaMart.name, chunk, PAIRS, RECIPROCAL)[:, 1:]
    return np.ascontiguousarray(values), np.stack([*scores, share], axis=1)


def standardised(chunk: Chunk, score: Floats) -> Floats:
    """Scores with mean 0 and deviation 1 in every query; zeros where all are equal."""
    owner, size = chunk.item_query(), np.maximum(np.diff(chunk.item_offsets), 1)
    centred = score - (np.bincount(owner, score, chunk.n_queries) / size)[owner]
    deviation = np.sqrt(np.bincount(owner, centred**2, chunk.n_queries) / size)
    return np.asarray(centred / np.where(deviation > 0.0, deviation, 1.0)[owner])
