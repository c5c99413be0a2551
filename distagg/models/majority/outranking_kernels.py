"""Kernels of outranking: how many lists agree that an item outranks another, and how many object."""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.models.lists import Lists
from distagg.models.majority.kernels import ROUNDING, query_table, query_weight
from distagg.types import Floats, Indices


@kernel
def agreement(
    table: Indices,  # (size, lists) places
    weight: Floats,  # (lists,); empty where each counts 1
    preference: int,
    veto: int,
) -> tuple[Floats, Floats]:  # (size, size) each
    """For items i and j: the lists with i at least ``preference`` places before j, and at least ``veto`` places behind.

    Both are sums of the weights of lists.
    """
    size = len(table)
    agree, object_ = np.zeros((size, size)), np.zeros((size, size))
    for a in range(table.shape[1]):
        share = weight[a] if len(weight) > 0 else 1.0
        for i in range(size):
            here = np.int64(table[i, a])
            for j in range(size):
                there = np.int64(table[j, a])
                if i != j and here + preference <= there:
                    agree[i, j] += share
                if i != j and here >= there + veto:
                    object_[i, j] += share
    return agree, object_


@kernel
def outranking_scores(agree: Floats, objecting: Floats, least: float, most: float, score: Floats) -> None:
    """The score of an item: the number of lists that agree, summed over the items that it outranks."""
    for i in range(len(agree)):
        for j in range(len(agree)):
            if i != j and agree[i, j] >= least and objecting[i, j] <= most:
                score[i] += agree[i, j]


@kernel
def outranking_chunk(
    preference: float, veto: float, concordance: float, discordance: float, weight: Floats, lists: Lists
) -> Floats:  # (I,)
    """The scores of every query."""
    score = np.zeros(lists.item_offsets[-1])
    for q in range(len(lists.item_offsets) - 1):
        base, end = lists.item_offsets[q], lists.item_offsets[q + 1]
        weights = query_weight(q, weight, lists)
        total = 0.0
        for a in range(lists.list_offsets[q + 1] - lists.list_offsets[q]):
            total += weights[a] if len(weight) > 0 else 1.0
        size = end - base
        agree, objecting = agreement(query_table(q, lists), weights, int(preference * size), int(veto * size))
        least, most = np.floor(concordance * total + ROUNDING), np.floor(discordance * total + ROUNDING)
        outranking_scores(agree, objecting, least, most, score[base:end])
    return score
