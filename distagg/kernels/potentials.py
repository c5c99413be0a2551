"""The CRF's potentials, one row for each entry: paper 000, equation 4. Cost: O(entries).

An item's score is a sum over the experts that list it. Those that do not would add their bias; taking it from those
that do instead moves all items of a query by the same amount, which changes no ranking and no probability.
"""

from __future__ import annotations

from distagg.kernels.jit import kernel
from distagg.types import Floats, Indices, Offsets


@kernel
def fill_potentials(
    column: int,
    item_offsets: Offsets,  # (Q + 1,)
    list_offsets: Offsets,  # (Q + 1,)
    entry_offsets: Offsets,  # (L + 1,)
    won: Floats,  # (E,) from pair_sums
    lost: Floats,  # (E,)
    potentials: Floats,  # (E, F) filled in: column 0, and two columns from ``column`` on
) -> None:
    """Being listed (-1: the bias is of those who are not), and what was won and lost for each item of the query."""
    for q in range(len(item_offsets) - 1):
        share = 1.0 / max(item_offsets[q + 1] - item_offsets[q], 1)
        for e in range(entry_offsets[list_offsets[q]], entry_offsets[list_offsets[q + 1]]):
            potentials[e, 0] = -1.0
            potentials[e, column] = won[e] * share
            potentials[e, column + 1] = -lost[e] * share


@kernel
def score_items(
    item_offsets: Offsets,  # (Q + 1,)
    list_offsets: Offsets,  # (Q + 1,)
    entry_offsets: Offsets,  # (L + 1,)
    entry_item: Indices,  # (E,)
    potentials: Floats,  # (E, F)
    row: Offsets,  # (L,) the row of weights that each list takes
    weights: Floats,  # (rows, F)
    score: Floats,  # (I,) added to
) -> None:
    """Weights times potentials, summed for each item."""
    for q in range(len(item_offsets) - 1):
        base = item_offsets[q]
        for a in range(list_offsets[q], list_offsets[q + 1]):
            w = row[a]
            for e in range(entry_offsets[a], entry_offsets[a + 1]):
                total = 0.0
                for f in range(potentials.shape[1]):
                    total += weights[w, f] * potentials[e, f]
                score[base + entry_item[e]] += total


@kernel
def index_by_item(
    item_offsets: Offsets,  # (Q + 1,)
    list_offsets: Offsets,  # (Q + 1,)
    entry_offsets: Offsets,  # (L + 1,)
    entry_item: Indices,  # (E,)
    start: Offsets,  # (I + 1,) zeros; filled in: where each item's entries start in ``entry``
    entry: Offsets,  # (E,) filled in: entries item by item
    holder: Offsets,  # (E,) filled in: the list of each of them
) -> None:
    """The entries of every item, in the order of lists."""
    for q in range(len(item_offsets) - 1):
        for e in range(entry_offsets[list_offsets[q]], entry_offsets[list_offsets[q + 1]]):
            start[item_offsets[q] + entry_item[e] + 1] += 1
    for i in range(len(start) - 1):
        start[i + 1] += start[i]
    for q in range(len(item_offsets) - 1):
        for a in range(list_offsets[q], list_offsets[q + 1]):
            for e in range(entry_offsets[a], entry_offsets[a + 1]):
                i = item_offsets[q] + entry_item[e]
                entry[start[i]], holder[start[i]] = e, a
                start[i] += 1  # moves on to the next item's start
    for n in range(len(start) - 1):
        i = len(start) - 1 - n
        start[i] = start[i - 1]
    start[0] = 0
