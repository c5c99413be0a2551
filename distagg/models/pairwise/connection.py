"""How the items of a comparison graph hang together: its thinnest link. Cost: items^2 and a sort of the pairs.

Two items that never met are compared through a chain of battles. If only a few battles join one part of the items to
the rest, all gaps between the two parts depend on these few. The candidates for parts come from single linkage, which
joins the pairs with the most battles first. The conductance of each part is computed: its battles with all other items,
as a share of all battles of the part (or of the rest, if the rest has fewer).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.types import INDEX, Floats, Indices

SMALLEST = 2  # items of a part: of a single item the board tells the battles anyway


class Link(NamedTuple):
    """The part of the items whose battles with the rest are the smallest share of its battles."""

    members: Indices  # (m,) the side with fewer battles
    battles: float  # between both sides
    share: float  # of them in the battles of that side


def thinnest_link(size: int, low: Indices, high: Indices, battles: Floats) -> Link | None:
    """The thinnest link between two parts of at least two items, given edges (E,) of a connected graph.

    >>> low, high = np.array([0, 0, 1, 3, 3, 4, 2]), np.array([1, 2, 2, 4, 5, 5, 3])
    >>> link = thinnest_link(6, low, high, np.array([9.0, 9.0, 9.0, 8.0, 8.0, 8.0, 2.0]))
    >>> link.members.tolist(), link.battles, link.share
    ([3, 4, 5], 2.0, 0.04)
    """
    between = np.zeros((size, size))
    np.add.at(between, (low, high), battles)
    between += between.T
    cut = between.sum(axis=1)
    volume, total = cut.copy(), float(cut.sum())
    root = list(range(size))
    members = [[item] for item in range(size)]
    best: Link | None = None
    for edge in np.argsort(-battles, kind="stable"):
        a, b = root[low[edge]], root[high[edge]]
        if a == b:
            continue
        if len(members[a]) < len(members[b]):
            a, b = b, a
        cut[a] += cut[b] - 2.0 * between[a, b]
        volume[a] += volume[b]
        between[a] += between[b]
        between[:, a] += between[:, b]
        for item in members[b]:
            root[item] = a
        members[a] += members[b]
        if not SMALLEST <= len(members[a]) <= size - SMALLEST:
            continue
        smaller = min(volume[a], total - volume[a])
        if best is None or cut[a] < best.share * smaller:
            own = np.array(sorted(members[a]), dtype=INDEX)
            side = own if volume[a] <= smaller else np.setdiff1d(np.arange(size, dtype=INDEX), own)
            best = Link(side, float(cut[a]), float(cut[a] / smaller))
    return best
