"""Who can be told apart by what lists say: an item beats all that stand behind it. Cost: O(entries) a sweep.

The edges are never written down. A list's consecutive groups connect everything in it, and an open list connects all
items, so lists themselves serve as the graph.
"""

from __future__ import annotations

import numpy as np

from distagg.kernels.jit import kernel
from distagg.kernels.plackett_luce import Choices
from distagg.types import INDEX, Bools, Floats, Indices, Offsets

OK, UNBEATEN, WINLESS, ISOLATED = 0, 1, 2, 3  # as distagg.models.outcome.STATUS


def examine(choices: Choices, item_offsets: Offsets, wins: Floats) -> tuple[Indices, Indices]:
    """What the comparisons can say of every item, and in which connected component of its query it stands.

    Components are numbered from 0 in the order of their first items.
    """
    sizes = np.diff(choices.start)
    row = np.repeat(item_offsets[:-1], np.diff(choices.start[choices.query])) + choices.item
    place = np.arange(len(row)) - np.repeat(choices.start[:-1], sizes)
    lost = np.bincount(row, place >= np.repeat(choices.behind[choices.start[:-1]], sizes), len(wins)) > 0
    first = item_offsets[:-1][np.diff(item_offsets) > 0]
    label = np.arange(len(wins))
    if choices.opened.any():
        opens = np.diff(np.concatenate([[0], np.cumsum(choices.opened)])[choices.query])
        within = np.repeat(np.arange(len(opens)), np.diff(item_offsets))
        lost |= np.bincount(row, np.repeat(choices.opened, sizes), len(wins)) < opens[within]
        label = np.where(opens[within] > 0, item_offsets[within], label)
    won = wins > 0.0
    status = np.where(won, np.where(lost, OK, UNBEATEN), np.where(lost, WINLESS, ISOLATED)).astype(INDEX)
    while len(row):  # hook roots onto the least label of each list, then shorten paths
        least = np.minimum.reduceat(label[row], choices.start[:-1])
        new = label.copy()
        np.minimum.at(new, label[row], np.repeat(least, sizes))
        new = new[new]
        if np.array_equal(new, label):
            break
        label = new
    roots = np.cumsum(label == np.arange(len(wins))) - 1
    ahead = np.zeros(len(wins), dtype=INDEX)
    ahead[first] = roots[first]
    return status, (roots[label] - np.maximum.accumulate(ahead)).astype(INDEX)


@kernel
def reach(forward: bool, choices: Choices, item_offsets: Offsets, component: Indices, reached: Bools) -> None:
    """Mark (I,) the items that the first item of their component beats along some path, or (not forward) loses to.

    Sweeps over the lists until nothing is new: a few on most data, at worst (a chain of pairs) one for each item. A
    component is strongly connected if both directions mark all of it.
    """
    for q in range(len(item_offsets) - 1):
        base, size = item_offsets[q], item_offsets[q + 1] - item_offsets[q]
        count, parts = 0, 0
        for i in range(size):
            reached[base + i] = component[base + i] == parts
            if reached[base + i]:
                parts += 1
                count += 1
        listed = np.zeros(size, dtype=np.bool_)
        before = -1
        while before < count < size:
            before = count
            for a in range(choices.query[q], choices.query[q + 1]):
                first, last = choices.start[a], choices.start[a + 1]
                here, least, most = 0, last - first, 0
                for n in range(last - first):
                    if reached[base + choices.item[first + n]]:
                        here += 1
                        least, most = min(least, choices.behind[first + n]), n
                if not forward and choices.opened[a] and count > here:
                    most = last - first
                if (here == 0 and most == 0) or count == size:
                    continue
                for n in range(last - first):
                    i = base + choices.item[first + n]
                    listed[i - base] = True
                    if not reached[i] and (n >= least if forward else choices.behind[first + n] <= most):
                        reached[i] = True
                        count += 1
                if forward and choices.opened[a]:
                    for i in range(size):
                        if not listed[i] and not reached[base + i]:
                            reached[base + i] = True
                            count += 1
                for e in range(first, last):
                    listed[choices.item[e]] = False
