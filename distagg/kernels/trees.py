"""Scores of boosted trees on sparse features: one query's rows at a time are spread out, then every tree is walked."""

from __future__ import annotations

from distagg.kernels.jit import kernel
from distagg.types import Floats, Indices, Offsets


@kernel
def add_trees(
    starts: Offsets,  # (T + 1,) where each tree's nodes start
    column: Offsets,  # (N,) the column that a node asks, -1 for a leaf
    threshold: Floats,  # (N,) at most this goes left; a leaf's value
    left: Offsets,  # (N,) where to go, counted from the tree's start
    right: Offsets,  # (N,)
    item_offsets: Offsets,  # (Q + 1,)
    row_offsets: Offsets,  # (Q + 1,) rows of features
    row_item: Indices,  # (R,) position of the item in its query
    row_expert: Indices,  # (R,)
    values: Floats,  # (R, width)
    places: Offsets,  # (experts, width) the column of each expert's feature, -1 where no tree asks it
    common: Floats,  # (I, C) features of the item as such
    common_places: Offsets,  # (C,)
    room: Floats,  # (items of the longest query, columns) to work in
    score: Floats,  # (1, I), or (T, I) for the sums after every tree; filled in
) -> None:
    """What an expert says of an item that it leaves out is 0."""
    count, stages = len(starts) - 1, score.shape[0]
    for q in range(len(item_offsets) - 1):
        begin = item_offsets[q]
        size = item_offsets[q + 1] - begin
        for i in range(size):
            for c in range(room.shape[1]):
                room[i, c] = 0.0
            for c in range(len(common_places)):
                if common_places[c] >= 0:
                    room[i, common_places[c]] = common[begin + i, c]
        for r in range(row_offsets[q], row_offsets[q + 1]):
            for c in range(places.shape[1]):
                place = places[row_expert[r], c]
                if place >= 0:
                    room[row_item[r], place] = values[r, c]
        for i in range(size):
            total = 0.0
            for t in range(count):
                root = starts[t]
                n = root
                while column[n] >= 0:
                    n = root + (left[n] if room[i, column[n]] <= threshold[n] else right[n])
                total += threshold[n]
                if stages > 1:
                    score[t, begin + i] = total
            if stages == 1:
                score[0, begin + i] = total
