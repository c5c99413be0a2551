"""Twins of a few kernels in plain numpy, with the same arguments and the same bits: what a first small job runs on.

Sums are made in the same order, one after the other (``add.at`` and ``cumsum`` do; ``sum`` and ``reduceat`` do not).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distagg.types import Floats, Indices, Offsets

ROOM = 4_000_000  # numbers of a table of spans, padded to the longest


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


def mid_positions(entry_offsets: Offsets, entry_rank: Floats) -> Floats:
    count = len(entry_rank)
    length = np.diff(entry_offsets)
    begin = np.repeat(entry_offsets[:-1], length)
    starts = np.ones(count, dtype=np.bool_)
    starts[1:] = (entry_rank[1:] != entry_rank[:-1]) | (begin[1:] != begin[:-1])
    first = np.flatnonzero(starts)
    last = np.append(first[1:], count)
    return np.asarray(np.repeat(0.5 * (first + last - 1), last - first) - begin + 1.0)


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
