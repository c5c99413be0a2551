"""Scores of boosted trees on sparse features: make one query's rows dense, then evaluate every tree on them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.scorers.kernels import Rows
from distagg.types import Floats, Offsets


class Trees(NamedTuple):
    """Trees, node after node."""

    starts: Offsets  # (T + 1,) where each tree's nodes start
    column: Offsets  # (N,) the column that a node asks, -1 for a leaf
    threshold: Floats  # (N,) at most this goes left; a leaf's value
    left: Offsets  # (N,) where to go, counted from the tree's start
    right: Offsets  # (N,)


@kernel
def leaf_value(trees: Trees, t: int, features: Floats) -> float:
    """The value of the leaf of tree t that an item with these features (columns,) reaches."""
    root = trees.starts[t]
    n = root
    while trees.column[n] >= 0:
        n = root + (trees.left[n] if features[trees.column[n]] <= trees.threshold[n] else trees.right[n])
    return trees.threshold[n]


@kernel
def spread_rows(q: int, rows: Rows, places: Offsets, common: Floats, common_places: Offsets, features: Floats) -> None:
    """Write query q's dense features to ``features`` (at least its items, columns); 0 where an expert omits an item."""
    begin, size = rows.item_offsets[q], rows.item_offsets[q + 1] - rows.item_offsets[q]
    for i in range(size):
        for c in range(features.shape[1]):
            features[i, c] = 0.0
        for c in range(len(common_places)):
            if common_places[c] >= 0:
                features[i, common_places[c]] = common[begin + i, c]
    for r in range(rows.offsets[q], rows.offsets[q + 1]):
        for c in range(places.shape[1]):
            place = places[rows.expert[r], c]
            if place >= 0:
                features[rows.item[r], place] = rows.values[r, c]


@kernel
def add_trees(
    trees: Trees,
    rows: Rows,
    places: Offsets,  # (experts, width) the column of each expert's feature, -1 where no tree asks it
    common: Floats,  # (I, C) features of the item as such
    common_places: Offsets,  # (C,)
    columns: int,
    score: Floats,  # (1, I), or (T, I) for the sums after every tree; filled in
) -> None:
    """Sums of the trees' values for every item."""
    stages, longest = len(score), 0
    for q in range(len(rows.item_offsets) - 1):
        longest = max(longest, rows.item_offsets[q + 1] - rows.item_offsets[q])
    features = np.empty((longest, columns))
    for q in range(len(rows.item_offsets) - 1):
        spread_rows(q, rows, places, common, common_places, features)
        begin, end = rows.item_offsets[q], rows.item_offsets[q + 1]
        for i in range(begin, end):
            total = 0.0
            for t in range(len(trees.starts) - 1):
                total += leaf_value(trees, t, features[i - begin])
                if stages > 1:
                    score[t, i] = total
            if stages == 1:
                score[0, i] = total
