"""Twins of a few kernels in plain numpy, with the same arguments and the same bits: what a first small job runs on.

Sums are made in the same order, one after the other (``add.at`` and ``cumsum`` do; ``sum`` and ``reduceat`` do not).
Compiled code says nothing of infinities, and neither do they.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from distagg.types import NO_LABEL, Floats, Indices, Labels, Offsets

BINARY, DIFFERENCE, NORMALISED, LOG = 0, 1, 2, 3  # pair functions
ROOM = 4_000_000  # numbers of a table of spans, padded to the longest
STEPS = 1000  # of a walk through all spans at once, where that does not pay


def add_up(values: Floats) -> Any:
    """The sum, one after the other, as loops add; ``np.sum`` adds halves."""
    return np.cumsum(values)[-1]


def _rows(item_offsets: Offsets, list_offsets: Offsets, entry_offsets: Offsets, entry_item: Indices) -> Offsets:
    """Of every entry that belongs to a query, the row of its item in the chunk; entries are in the queries' order."""
    return np.asarray(np.repeat(item_offsets[:-1], np.diff(entry_offsets[list_offsets])) + entry_item)


def sum_by_item(
    item_offsets: Offsets, list_offsets: Offsets, entry_offsets: Offsets, entry_item: Indices, weights: Floats
) -> Floats:
    total = np.zeros(item_offsets[-1])
    np.add.at(total, _rows(item_offsets, list_offsets, entry_offsets, entry_item), weights)
    return total


def reciprocal_sums(
    c: float, item_offsets: Offsets, list_offsets: Offsets, entry_offsets: Offsets, entry_item: Indices,
    entry_rank: Floats, total: Floats,
) -> None:  # fmt: skip
    with np.errstate(divide="ignore"):
        np.add.at(total, _rows(item_offsets, list_offsets, entry_offsets, entry_item), 1.0 / (c + entry_rank))


def tied(entry_offsets: Offsets, entry_rank: Floats) -> tuple[Offsets, Offsets]:
    """The first entry of every tie group, and the one behind its last."""
    begin = np.repeat(entry_offsets[:-1], np.diff(entry_offsets))
    starts = np.ones(len(entry_rank), dtype=np.bool_)
    starts[1:] = (entry_rank[1:] != entry_rank[:-1]) | (begin[1:] != begin[:-1])
    first = np.flatnonzero(starts)
    return first, np.append(first, len(entry_rank))[1:]


def mid_positions(entry_offsets: Offsets, entry_rank: Floats) -> Floats:
    first, last = tied(entry_offsets, entry_rank)
    begin = np.repeat(entry_offsets[:-1], np.diff(entry_offsets))
    return np.asarray(np.repeat(0.5 * (first + last - 1), last - first) - begin + 1.0)


def _logs(values: Floats) -> Floats:
    """Logarithms of the C library, which compiled code calls too; numpy's own may differ in the last bit."""
    different, at = np.unique(values, return_inverse=True)
    made = [math.log(v) if v > 0.0 else -math.inf if v == 0.0 else math.nan for v in different.tolist()]
    return np.array(made, dtype=np.float64)[at]


@np.errstate(all="ignore")
def pair_values(entry_offsets: Offsets, entry_rank: Floats, left_out: Offsets, function: int) -> tuple[Floats, Floats]:
    length = np.diff(entry_offsets)
    some = length > 0
    largest = np.zeros(len(length))
    largest[some] = entry_rank[entry_offsets[1:][some] - 1]
    largest[left_out > 0] += 1.0
    value, outside, scale = entry_rank, largest, np.ones(len(length))
    if function == LOG:
        value, outside = _logs(entry_rank), _logs(largest)
        scale = np.where(largest > 1.0, 1.0 / outside, 0.0)
    elif function == NORMALISED:
        scale = np.where(largest > 0.0, 1.0 / largest, 0.0)
    return np.repeat(scale, length) * value, np.where(some, scale * outside, 0.0)


@np.errstate(all="ignore")
def pair_sums(
    entry_offsets: Offsets, entry_rank: Floats, value: Floats, outside: Floats, left_out: Offsets, binary: bool
) -> Any:
    length = np.diff(entry_offsets)
    first, last = tied(entry_offsets, entry_rank)
    size = last - first
    ahead = np.repeat(first, size) - np.repeat(entry_offsets[:-1], length)
    after = np.repeat(entry_offsets[1:], length) - np.repeat(last, size)
    out = np.repeat(left_out, length)
    if binary:
        return (after + out).astype(np.float64), ahead.astype(np.float64), np.where(left_out > 0, length, 0.0)
    together = np.zeros(len(entry_rank))  # of a tie group, at its first entry
    together[first] = value[first] * size
    before = _sums_before(entry_offsets, together)
    if before is None:
        return NotImplemented
    below, group = np.repeat(before[first], size), np.repeat(together[first], size)
    total = np.bincount(np.repeat(np.arange(len(length)), length), value, len(length))
    won = np.maximum(np.repeat(total, length) - below - group - after * value, 0.0)
    won += out * (np.repeat(outside, length) - value)
    lost = np.maximum(ahead * value - below, 0.0)
    return won, lost, np.where(left_out > 0, length * outside - total, 0.0)


@np.errstate(all="ignore")
def score_lists(
    functions: Offsets, reciprocal: float, item_offsets: Offsets, list_offsets: Offsets, entry_offsets: Offsets,
    entry_item: Indices, entry_rank: Floats, row: Offsets, weights: Floats, values: Floats, sums: Floats, score: Floats,
) -> Any:  # fmt: skip
    per_query = np.diff(entry_offsets[list_offsets])
    share = np.repeat(1.0 / np.maximum(np.diff(item_offsets), 1), per_query)
    weight = weights[np.repeat(row, np.diff(entry_offsets))].T
    given = weight[0] * -1.0
    nobody = np.zeros(len(row), dtype=np.int64)
    for p, function in enumerate(functions):
        value, outside = pair_values(entry_offsets, entry_rank, nobody, function)
        found = pair_sums(entry_offsets, entry_rank, value, outside, nobody, function == BINARY)
        if found is NotImplemented:
            return found
        given += weight[1 + 2 * p] * (found[0] * share)
        given += weight[2 + 2 * p] * (-found[1] * share)
    if reciprocal > 0.0:
        given += weight[1 + 2 * len(functions)] * (reciprocal / (reciprocal + entry_rank))
    np.add.at(score, _rows(item_offsets, list_offsets, entry_offsets, entry_item), given)
    return None


def index_by_item(
    item_offsets: Offsets, list_offsets: Offsets, entry_offsets: Offsets, entry_item: Indices, start: Offsets,
    entry: Offsets, holder: Offsets,
) -> None:  # fmt: skip
    row = _rows(item_offsets, list_offsets, entry_offsets, entry_item)
    start[1:] = np.cumsum(np.bincount(row, minlength=len(start) - 1))
    entry[:] = np.argsort(row, kind="stable")
    holder[:] = np.repeat(np.arange(len(entry_offsets) - 1), np.diff(entry_offsets))[entry]


def borda_points(
    average: bool, item_offsets: Offsets, list_offsets: Offsets, entry_offsets: Offsets, entry_item: Indices,
    entry_rank: Floats, points: Floats, held: Floats, leftover: Floats,
) -> None:  # fmt: skip
    lists, length = np.diff(list_offsets), np.diff(entry_offsets)
    size = np.repeat(np.diff(item_offsets), lists)
    rest = np.maximum(size - length - 1, 0) / 2 if average else np.zeros(len(length))
    np.add.at(leftover, np.repeat(np.arange(len(lists)), lists), rest)
    row = _rows(item_offsets, list_offsets, entry_offsets, entry_item)
    np.add.at(points, row, np.repeat(size, length) - mid_positions(entry_offsets, entry_rank) - np.repeat(rest, length))
    np.add.at(held, row, 1.0)


def sort_spans(
    offsets: Offsets, key: Floats, order: Indices, key_buffer: Floats, order_buffer: Indices, exchanges: Offsets
) -> Any:
    if len(exchanges):
        return NotImplemented  # counting them is the kernel's
    sizes = np.diff(offsets)
    found = np.lexsort((-key, np.repeat(np.arange(len(sizes)), sizes)))
    key[:], order[:] = key[found], found - np.repeat(offsets[:-1], sizes)
    return None


def _padded(offsets: Offsets, values: Floats, fill: float) -> tuple[Floats, Any]:
    """Spans as rows of a table, and where in it the values are; the table is empty where it would be too large."""
    sizes = np.diff(offsets)
    if len(sizes) * int(sizes.max(initial=0)) > ROOM:
        return np.zeros((0, 0)), None
    at = np.arange(int(sizes.max(initial=0)))[None, :] < sizes[:, None]
    table = np.full(at.shape, fill)
    table[at] = values
    return table, at


def _sums_before(offsets: Offsets, values: Floats) -> Floats | None:
    """Of every value, the sum of those before it in its span: place by place, through all spans that have it."""
    sizes = np.diff(offsets)
    having = len(sizes) - np.cumsum(np.bincount(sizes))  # spans with more values than 0, 1 ..
    if len(having) > STEPS + len(values) // 16:
        return None
    first = offsets[:-1][np.argsort(-sizes, kind="stable")]
    so_far, found = np.zeros(len(sizes)), np.empty(len(values))
    for place, count in enumerate(having.tolist()):
        at = first[:count] + place
        found[at] = so_far[:count]
        so_far[:count] += values[at]
    return found


def sums_at_cutoffs(item_offsets: Offsets, values: Floats, discounts: Floats, cutoffs: Offsets, sums: Floats) -> Any:
    table, at = _padded(item_offsets, values, 0.0)
    if at is None:
        return NotImplemented
    longest = table.shape[1]
    so_far = np.zeros((len(table), longest + 1))
    np.cumsum(table * discounts[:longest], axis=1, out=so_far[:, 1:])
    sums[:] = so_far[:, np.minimum(cutoffs, longest)]
    return None


def precision_at_hits(item_offsets: Offsets, relevant: Floats, values: Floats) -> None:
    sizes = np.diff(item_offsets)
    so_far = np.concatenate([[0.0], np.cumsum(relevant)])
    hits = so_far[1:] - np.repeat(so_far[item_offsets[:-1]], sizes)
    values[:] = relevant * hits / (np.arange(len(relevant)) - np.repeat(item_offsets[:-1], sizes) + 1)


def stop_probability(item_offsets: Offsets, satisfied: Floats, values: Floats) -> Any:
    table, at = _padded(item_offsets, satisfied, 0.0)
    if at is None:
        return NotImplemented
    reached = np.ones_like(table)
    np.cumprod(1.0 - table[:, :-1], axis=1, out=reached[:, 1:])
    values[:] = (reached * table)[at]
    return None


def draw_samples(
    item_offsets: Offsets, labels: Labels, keys: Floats, kinds: Offsets, picked: Offsets, sizes: Offsets
) -> Any:
    count, most = picked.shape
    item = np.argsort(keys)
    item = item[labels[item] != NO_LABEL]  # smallest keys first
    query = np.repeat(np.arange(count), np.diff(item_offsets))[item]
    label = labels[item].astype(np.int64)
    label -= label.min(initial=0)
    n_labels = int(label.max(initial=0)) + 1
    if count * n_labels > ROOM:
        return NotImplemented
    kind, first = query * n_labels + label, np.zeros(count * n_labels, dtype=np.int64)
    first[kind[::-1]] = np.arange(len(item))[::-1]  # what is written last stays: of every label, the smallest key
    more = first[kind] != np.arange(len(item))
    held = np.bincount(query, minlength=count)
    sizes[:] = np.where(np.bincount(query[~more], minlength=count) > 1, np.minimum(held, most), 0)
    groups = (2 * query + more).astype(np.min_scalar_type(2 * count))  # small integers are sorted in linear time
    item = item[np.argsort(groups, kind="stable")]
    place = np.arange(len(item)) - np.repeat(np.cumsum(held) - held, held)
    taken = place < np.repeat(sizes, held)
    picked[np.repeat(np.arange(count), held)[taken], place[taken]] = item[taken]
    return None
