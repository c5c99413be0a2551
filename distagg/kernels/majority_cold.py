"""Twins of the kernels on majorities and of Kemeny's local search, by plain numpy and lists (see ``cold``).

Queries are padded to the largest, and their margins are made together, a list of each at a time.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from distagg.kernels.cold import ROOM, tied
from distagg.types import Bools, Floats, Indices, Offsets

UNLISTED = np.int32(2**31 - 1)  # the place of an item that a list leaves out
WORK = 400_000_000  # comparisons of places: a second
SWEEPS = 30  # of a walk; few need more


def _margins(
    unlisted_last: bool, item_offsets: Offsets, list_offsets: Offsets, entry_offsets: Offsets, entry_item: Indices,
    entry_rank: Floats, pair_offsets: Offsets, pair_winner: Indices, pair_loser: Indices, pair_weight: Floats,
    pair_tie: Bools,
) -> Floats:  # fmt: skip
    """Margins of all queries (Q, size, size), padded with zeros."""
    sizes, lists, length = np.diff(item_offsets), np.diff(list_offsets), np.diff(entry_offsets)
    count, size, most = len(sizes), int(sizes.max(initial=0)), int(lists.max(initial=0))
    first, last = tied(entry_offsets, entry_rank)
    query, nth = np.repeat(np.arange(count), lists), np.arange(len(length)) - np.repeat(list_offsets[:-1], lists)
    place = np.full((most, count, size), UNLISTED)
    place[np.repeat(nth, length), np.repeat(query, length), entry_item] = np.repeat(first, last - first)
    real, over = _real(item_offsets), np.empty((count, size, size), dtype=np.bool_)
    wins = np.zeros(over.shape, dtype=np.min_scalar_type(most))  # bytes add up several times as fast
    for own in place:  # one list of every query
        other = np.where(real if unlisted_last else own != UNLISTED, own, np.int32(-1))  # what loses to nothing
        np.less(own[:, :, None], other[:, None, :], out=over)
        wins += over.view(np.uint8)
    margins = np.subtract(wins, wins.transpose(0, 2, 1), dtype=np.float64)
    decided = ~pair_tie
    winner, loser, weight = pair_winner[decided], pair_loser[decided], pair_weight[decided]
    query = np.repeat(np.arange(count), np.diff(pair_offsets))[decided]
    ends = np.stack([winner, loser], axis=1), np.stack([loser, winner], axis=1)
    np.add.at(margins, (query[:, None], *ends), np.stack([weight, -weight], axis=1))
    return margins


def _span(
    first: int, last: int, item_offsets: Offsets, list_offsets: Offsets, entry_offsets: Offsets, entry_item: Indices,
    entry_rank: Floats, pair_offsets: Offsets, *pairs: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The arrays of a few queries, as of a chunk of their own."""
    lists, own = slice(list_offsets[first], list_offsets[last]), slice(pair_offsets[first], pair_offsets[last])
    entries = slice(entry_offsets[lists.start], entry_offsets[lists.stop])
    return (
        item_offsets[first : last + 1] - item_offsets[first], list_offsets[first : last + 1] - lists.start,
        entry_offsets[lists.start : lists.stop + 1] - entries.start, entry_item[entries], entry_rank[entries],
        pair_offsets[first : last + 1] - own.start, *(column[own] for column in pairs),
    )  # fmt: skip


def _spans(item_offsets: Offsets, list_offsets: Offsets, *_: Any) -> list[tuple[int, int]] | None:
    """Queries, from the first to before the last, whose margins are made together; none where that takes too long."""
    sizes, lists = np.diff(item_offsets), np.diff(list_offsets)
    if (sizes**2 * np.maximum(lists, 1)).sum() > WORK or (sizes * np.maximum(sizes, lists)).max(initial=0) > ROOM:
        return None
    cuts, largest, most = [0], 0, 0
    for q, (size, many) in enumerate(zip(sizes.tolist(), lists.tolist(), strict=True)):
        largest, most = max(largest, size), max(most, many)
        if (q + 1 - cuts[-1]) * largest * max(largest, most) > ROOM:
            cuts.append(q)
            largest, most = size, many
    return list(itertools.pairwise([*cuts, len(sizes)]))


def chunk_margins(q: int, unlisted_last: bool, *arrays: Any) -> Any:
    own = _span(q, q + 1, *arrays)
    return NotImplemented if _spans(*own) is None else _margins(unlisted_last, *own)[0]


def copeland_chunk(unlisted_last: bool, *arrays: Any) -> Any:
    score, spans = np.zeros(arrays[0][-1]), _spans(*arrays)
    for first, last in spans or ():
        own = _span(first, last, *arrays)
        wins = np.sign(_margins(unlisted_last, *own)).sum(axis=2)
        score[arrays[0][first] : arrays[0][last]] = wins[_real(own[0])]
    return NotImplemented if spans is None else score


def _real(item_offsets: Offsets) -> Bools:  # (Q, size)
    """Where a table of queries, padded to the largest, has items."""
    sizes = np.diff(item_offsets)
    return np.asarray(np.arange(sizes.max(initial=0)) < sizes[:, None])


def sort_chunk(local: bool, start: Indices, unlisted_last: bool, *arrays: Any) -> Any:
    score, spans, offsets = np.zeros(arrays[0][-1]), _spans(*arrays), arrays[0].tolist()
    for first, last in spans or ():
        margins = _margins(unlisted_last, *_span(first, last, *arrays))
        for q in range(first, last):
            base, end = offsets[q], offsets[q + 1]
            beats = (margins[q - first] > 0.0).tolist()
            order = (_lifted if local else _merged)(start[base:end].tolist(), beats)
            score[base + np.array(order, dtype=np.int64)] = np.arange(end - base, 0, -1)
    return NotImplemented if spans is None else score


def _merged(order: list[int], beats: list[list[bool]]) -> list[int]:
    """See ``majority_sort``."""
    width = 1
    while width < len(order):
        made: list[int] = []
        for low in range(0, len(order), 2 * width):
            left, taken = order[low : low + width], 0
            for item in order[low + width : low + 2 * width]:
                while taken < len(left) and not beats[item][left[taken]]:
                    made.append(left[taken])
                    taken += 1
                made.append(item)
            made += left[taken:]
        order, width = made, 2 * width
    return order


def _lifted(order: list[int], beats: list[list[bool]]) -> list[int]:
    """See ``local_kemeny``."""
    for at, item in enumerate(order):
        to = at
        while to > 0 and beats[item][order[to - 1]]:
            to -= 1
        order.insert(to, order.pop(at))
    return order


def majority_walks(teleport: float, tolerance: float, steps: int, unlisted_last: bool, *arrays: Any) -> Any:
    score, spans, unfinished = np.zeros(arrays[0][-1]), _spans(*arrays), 0
    for first, last in spans or ():
        own = _span(first, last, *arrays)
        x, left = _walks(teleport, tolerance, min(steps, SWEEPS), np.diff(own[0]), _margins(unlisted_last, *own))
        if steps > SWEEPS and (left > tolerance).any():
            return NotImplemented  # majorities with many cycles
        score[arrays[0][first] : arrays[0][last]] = x[_real(own[0])]
        unfinished += int((~(left <= tolerance)).sum())
    return NotImplemented if spans is None else (score, unfinished)


def _walks(
    teleport: float, tolerance: float, steps: int, sizes: Offsets, margins: Floats
) -> tuple[Floats, Floats]:  # (Q, size), (Q,)
    """Of every query the distribution, and what is still on the way. See ``majority_walk``."""
    above = (margins < 0.0).sum(axis=2).astype(np.float64)
    share, jump = (1.0 - teleport) / np.maximum(sizes, 1), teleport / np.maximum(sizes, 1)
    move = np.where(margins < 0.0, share[:, None, None], 0.0)
    order = np.argsort(-above, axis=1, kind="stable")  # what pads a query comes last, and has nothing to pass on
    stays = 1.0 - (1.0 - teleport) + above * share[:, None]
    x, waiting = np.zeros(above.shape), np.where(np.arange(above.shape[1]) < sizes[:, None], jump[:, None], 0.0)
    left, step = np.ones(len(sizes)), 0
    while step < steps and (left > tolerance).any():
        going = np.flatnonzero(left > tolerance)
        own, at = waiting[going], np.arange(len(going))
        for i in order[going].T:
            mass = own[at, i] / stays[going, i]
            x[going, i] += mass
            own[at, i] = 0.0
            own += mass[:, None] * move[going, i]
        waiting[going] = own
        left[going] = np.cumsum(own / teleport, axis=1)[:, -1] if own.size else 0.0
        step += 1
    return x, left


def ordered_pairs(
    unlisted_last: bool, item_offsets: Offsets, list_offsets: Offsets, entry_offsets: Offsets, entry_rank: Floats,
    total: Floats,
) -> None:  # fmt: skip
    lists, length = np.diff(list_offsets), np.diff(entry_offsets)
    first, last = tied(entry_offsets, entry_rank)
    ahead = np.repeat(first, last - first) - np.repeat(entry_offsets[:-1], length)
    query = np.repeat(np.arange(len(lists)), lists)
    total += np.bincount(np.repeat(query, length), ahead, len(lists))
    if unlisted_last:
        total += np.bincount(query, length * (np.repeat(np.diff(item_offsets), lists) - length), len(lists))


def worth(matrix: Floats, order: Offsets) -> float:
    later = matrix[order[:, None], order][np.triu_indices(len(order), 1)]
    return float(np.cumsum(later)[-1]) if len(later) else 0.0


def descend(matrix: Floats, order: Offsets, tolerance: float) -> int:
    size = len(order)
    looked, since, item = 0, 0, 0
    while since < size:
        at = int(np.flatnonzero(order == item)[0])
        row = matrix[item, order]
        above, below = np.cumsum(row[:at][::-1]), np.cumsum(-row[at + 1 :])
        best, to = tolerance, at
        if at > 0 and above.max() > best:
            best, to = above.max(), at - 1 - int(above.argmax())  # the nearest of the best
        if at + 1 < size and below.max() > best:
            to = at + 1 + int(below.argmax())
        looked += size
        since = since + 1 if to == at else 0
        if to > at:
            order[at:to] = order[at + 1 : to + 1]
        elif to < at:
            order[to + 1 : at + 1] = order[to:at]
        order[to] = item
        item = item + 1 if item + 1 < size else 0
    return looked
