"""Twins of Plackett-Luce's fit in plain numpy (see ``cold``), for closed lists without ties.

Lists are the rows of a table, padded to the longest, and all are walked along at once; sums over lists are made one
after the other, as the kernels do. Exponentials and logarithms are the C library's: numpy's own differ in bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distagg.kernels.cold import add_up
from distagg.types import Bools, Floats, Indices, Offsets

if TYPE_CHECKING:
    from distagg.kernels.plackett_luce import Choices

MEMORY, SEARCHES, KEPT, LEAST = 10, 30, 0.9, 1e-100  # as in the kernels
SWEEPS = 30  # over all lists, to see what the first item reaches
QUERIES = 50  # gone through one by one
WORK = 30_000_000  # numbers that a fit may look at: half a second
CALLS = 10_000  # numbers whose time the calls of one pass take
PASSES = 60  # over all entries, that most fits take


def reach(forward: bool, choices: Choices, item_offsets: Offsets, component: Indices, reached: Bools) -> Any:
    if choices.opened.any():
        return NotImplemented
    sizes = np.diff(choices.start)
    row = np.repeat(item_offsets[:-1], np.diff(choices.start[choices.query])) + choices.item
    place, behind = np.arange(len(row)) - np.repeat(choices.start[:-1], sizes), choices.behind
    within = np.repeat(np.arange(len(item_offsets) - 1), np.diff(item_offsets))
    seen = np.zeros(len(reached), dtype=np.bool_)
    seen[np.unique(within * (len(reached) + 1) + component, return_index=True)[1]] = True
    for _ in range(SWEEPS if len(row) else 1):
        before, known = int(seen.sum()), seen[row]
        if before == len(seen) or not len(row):
            new = known
        elif forward:
            least = np.minimum.reduceat(np.where(known, behind, np.repeat(sizes, sizes)), choices.start[:-1])
            new = place >= np.repeat(least, sizes)
        else:
            new = behind <= np.repeat(np.maximum.reduceat(np.where(known, place, -1), choices.start[:-1]), sizes)
        seen[row[new]] = True
        if int(seen.sum()) == before:
            reached[:] = seen
            return None
    return NotImplemented  # a long way


class Table(NamedTuple):
    """Lists of one query: n lists x places of the longest."""

    item: Offsets  # 0 where there is none
    held: Bools
    chooses: Bools  # all but the last of a list
    weight: Floats  # (n, 1)


def _table(choices: Choices, q: int) -> Table | None:
    """None where something is tied, or padding would take too much."""
    lists = slice(int(choices.query[q]), int(choices.query[q + 1]))
    start = choices.start[lists.start : lists.stop + 1]
    sizes, entries = np.diff(start), slice(int(start[0]), int(start[-1]))
    place = np.arange(entries.stop - entries.start) - np.repeat(start[:-1] - start[0], sizes)
    longest = int(sizes.max(initial=0))
    if (choices.behind[entries] != place + 1).any() or longest * len(sizes) > 2 * len(place) + CALLS:
        return None
    held = np.arange(longest) < sizes[:, None]
    item: Offsets = np.zeros(held.shape, dtype=np.int64)
    item[held] = choices.item[entries]
    return Table(item, held, np.arange(longest) < sizes[:, None] - 1, choices.weight[lists, None])


def _logs(values: Floats) -> Floats:
    return np.array([math.log(v) for v in values.tolist()])


def _expect(table: Table, shape: float, theta: Floats) -> tuple[float, Floats] | None:
    """Log likelihood, and how often theta expects every item to be chosen; none where a chance vanishes."""
    size = len(theta)
    x = np.array([math.exp(v) for v in (theta - theta.max()).tolist()])
    strength = np.where(table.held, x[table.item], 0.0)
    suffix = np.cumsum(strength[:, ::-1], axis=1)[:, ::-1]
    share = np.where(table.chooses, 1.0 / suffix, 0.0)
    given = table.weight * np.cumsum(share, axis=1)
    expected = np.bincount(table.item[table.held], given[table.held], size)
    chance = np.where(table.chooses, strength * share, 1.0)
    product: Floats = np.cumprod(chance, axis=1, dtype=np.float64)
    terms = np.zeros((len(product), product.shape[1] + 1))
    last: Floats = product[:, -1]
    if product.min() < LEAST:
        last = np.ones(len(product))
        for place in range(product.shape[1]):
            last *= chance[:, place]
            low = last < LEAST
            if low.any():
                if last.min() <= 0.0:
                    return None
                terms[low, place], last[low] = _logs(last[low]), 1.0
    terms[:, -1] = _logs(last)
    terms *= table.weight
    return add_up(terms.ravel()), x * (expected + shape * size / add_up(x))


def _direction(gradient: Floats, moves: Floats, turns: Floats, held: int, step: int) -> Floats:
    out, weight = -gradient, np.empty(MEMORY)
    rows = [(step - 1 - back) % MEMORY for back in range(held)]
    for row in rows:
        weight[row] = add_up(moves[row] * out) / add_up(moves[row] * turns[row])
        out -= weight[row] * turns[row]
    if held > 0:
        out *= add_up(moves[rows[0]] * turns[rows[0]]) / add_up(turns[rows[0]] * turns[rows[0]])
    for row in reversed(rows):
        out += moves[row] * (weight[row] - add_up(turns[row] * out) / add_up(moves[row] * turns[row]))
    return np.asarray(out)


@np.errstate(all="ignore")
def climb(
    choices: Choices, item_offsets: Offsets, wins: Floats, number: Floats, shape: float, tolerance: float, steps: int,
    theta: Floats, ended: Floats, trace: Floats,
) -> Any:  # fmt: skip
    if choices.opened.any() or len(number) > QUERIES or PASSES * len(choices.item) > WORK:
        return NotImplemented
    made, ends, values, work = theta.copy(), ended.copy(), trace.copy(), 0
    for q in range(len(number)):
        span = slice(int(item_offsets[q]), int(item_offsets[q + 1]))
        if number[q] == 0.0:
            continue
        table = _table(choices, q)
        if table is None:
            return NotImplemented
        size, here, chosen = span.stop - span.start, made[span], wins[span] + shape
        moves, turns, scale = np.empty((MEMORY, size)), np.empty((MEMORY, size)), np.ones(size)
        ahead, gradient = np.zeros(size), np.zeros(size)
        held, kept, step, tried = 0, 0, -2, 0
        slope, low, low_slope, high, high_slope, length = 0.0, 0.0, 0.0, math.inf, 0.0, 0.0
        while tried < SEARCHES:
            trial = here + length * scale * ahead
            found = _expect(table, shape, trial)
            work += table.item.size + CALLS
            if found is None or work > WORK:
                return NotImplemented
            value, expected = found
            if step == -2:
                step = -1
                some = chosen > 0.0
                here[some] += _logs(chosen[some] / expected[some])
                continue
            if step < 0:
                middle = 0.5 * (chosen + expected)
                scale = np.where(middle > 0.0, 1.0 / np.sqrt(middle), 0.0)
            off = expected - wins[span] - shape
            turned = off * scale
            rise, left = add_up(turned * ahead), np.abs(off).max()
            if not abs(rise) <= -KEPT * slope:
                tried += 1
                if rise < 0.0:
                    low, low_slope, length = length, rise, length * 2.0
                else:
                    high, high_slope = length, rise
                if high < math.inf:
                    length = low + min(max(low_slope / (low_slope - high_slope), 0.1), 0.9) * (high - low)
                continue
            row = kept % MEMORY
            moves[row], turns[row] = length * ahead, turned - gradient
            here[:], gradient = trial, turned
            if add_up(moves[row] * turns[row]) > 0.0:
                kept, held = kept + 1, min(held + 1, MEMORY)
            step += 1
            ends[q] = step, left / number[q], value
            if 0 < step <= trace.shape[1]:
                values[q, step - 1] = value
            if step >= steps or left <= tolerance * number[q]:
                break
            ahead = _direction(gradient, moves, turns, held, kept)
            slope = add_up(gradient * ahead)
            low, low_slope, high, length, tried = 0.0, slope, math.inf, 1.0, 0
    theta[:], ended[:], trace[:] = made, ends, values
    return None
