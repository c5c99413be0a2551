"""Twins of pair counts and pairwise fits in plain numpy (see ``cold``): the comparison graph, Newton's method.

Of fits only the LOGIT link has them, and queries of counts whose pairs stand in the row of their lower item.
``bincount`` adds one after the other, as the kernels do. Exponentials and logarithms are the C library's: numpy's own
differ in bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from distagg.kernels.cold import add_up
from distagg.types import Bools, Floats, Indices, Labels, Offsets

LOGIT, GAUSSIAN, GAMMA = 0, 1, 2  # as in ``links`` and ``newton``
WIDEST, UPHILL, TRIES = 600.0, 0.1, 60
FULL = 1e300  # a product above goes into its logarithm
BLOCK = 1 << 19  # edges that are looked at together
SWEEPS = 10  # over all edges, to see what the first item reaches
QUERIES = 100  # gone through one by one
EDGES = 1 << 20  # of a fit; from here on compiling takes less time, and the kernel less memory
WORK = 60_000_000  # numbers that a fit may look at: half a second
CALLS = 10_000  # numbers whose time the calls of one sweep take
PAIRS = 1 << 21  # that are counted together: 60 bytes each


def count_squares(
    share: float, first_query: int, item_offsets: Offsets, pair_offsets: Offsets, winner: Indices, loser: Indices,
    weight: Floats, tie: Bools, edges: int, offsets: Offsets, other: Indices, ahead: Floats, behind: Floats,
    won: Floats, lost: Floats, ties: Floats,
) -> Any:  # fmt: skip
    if len(winner) > PAIRS or len(pair_offsets) > QUERIES:
        return NotImplemented
    for n in range(len(pair_offsets) - 1):
        base, end = item_offsets[first_query + n], item_offsets[first_query + n + 1]
        size, here = int(end - base), slice(pair_offsets[n], pair_offsets[n + 1])
        i, j, tied = winner[here].astype(np.int64), loser[here].astype(np.int64), tie[here]
        low, trash = 2 * (np.minimum(i, j) * size + np.maximum(i, j)), 2 * size * size
        cell = np.stack([np.where(tied, low, low + (i > j)), np.where(tied, low + 1, trash)], axis=1)
        cell[i == j] = trash  # says nothing
        amount = np.where(tied, share, 1.0) * weight[here]
        square = np.bincount(cell.ravel(), np.repeat(amount, 2), trash + 1)[:-1].reshape(-1, 2)
        met = np.flatnonzero(square[:, 0] + square[:, 1] > 0.0)
        (up, down), (i, j) = square[met].T, np.divmod(met, max(size, 1))
        to, both = slice(edges, edges + len(met)), np.stack([i, j], axis=1).ravel()
        other[to], ahead[to], behind[to] = j, up, down
        won[base:end] += np.bincount(both, np.stack([up, down], axis=1).ravel(), size)
        lost[base:end] += np.bincount(both, np.stack([down, up], axis=1).ravel(), size)
        draws = tied & (cell[:, 1] != trash)
        ties[first_query + n] += np.bincount(np.zeros(draws.sum(), np.int64), weight[here][draws], 1)[0]
        offsets[base + 1 : end + 1] = edges + np.cumsum(np.bincount(i, minlength=size))
        edges += len(met)
    return edges


def _edges(
    item_offsets: Offsets, offsets: Offsets, other: Indices
) -> Iterator[tuple[slice, Offsets, Offsets]]:  # fmt: skip
    """Edges, some at a time, and both items of each as rows of the chunk."""
    base = np.repeat(item_offsets[:-1], np.diff(item_offsets))
    for begin in range(0, len(other), BLOCK):
        end = min(begin + BLOCK, len(other))
        first, last = np.searchsorted(offsets, begin, side="right") - 1, np.searchsorted(offsets, end)
        bounds: Offsets = np.clip(offsets[first : last + 1], begin, end)
        row = np.repeat(np.arange(first, last), np.diff(bounds))
        yield slice(begin, end), row, base[row] + other[begin:end]


def examine(
    item_offsets: Offsets, offsets: Offsets, other: Indices, ahead: Floats, behind: Floats, status: Labels,
    component: Labels, connected: Offsets,
) -> None:  # fmt: skip
    won, lost = np.zeros(len(status), dtype=np.bool_), np.zeros(len(status), dtype=np.bool_)
    label = np.arange(len(status))  # the least item known to be connected
    for edges, one, two in _edges(item_offsets, offsets, other):
        up, down = ahead[edges] > 0.0, behind[edges] > 0.0
        won[one[up]] = won[two[down]] = lost[two[up]] = lost[one[down]] = True
        apart = (up | down) & (label[one] != label[two])
        while apart.any():
            one, two = one[apart], two[apart]
            least = np.minimum(label[one], label[two])
            np.minimum.at(label, np.concatenate([label[one], label[two]]), np.concatenate([least, least]))
            while not np.array_equal(label[label], label):
                label = label[label]
            apart = label[one] != label[two]
    status[:] = np.where(won, np.where(lost, 0, 1), np.where(lost, 2, 3))
    roots = np.concatenate([[0], np.cumsum(label == np.arange(len(label)))])
    component[:] = roots[label] - np.repeat(roots[item_offsets[:-1]], np.diff(item_offsets))
    connected[:] = np.diff(roots[item_offsets])


def count_strong(
    item_offsets: Offsets, offsets: Offsets, other: Indices, ahead: Floats, behind: Floats, strong: Offsets
) -> Any:
    sizes = np.diff(item_offsets)
    for out, back in ((ahead, behind), (behind, ahead)):
        seen = np.zeros(len(offsets) - 1, dtype=np.bool_)
        seen[item_offsets[:-1][sizes > 0]] = True
        for _ in range(SWEEPS):
            before = int(seen.sum())
            for edges, one, two in _edges(item_offsets, offsets, other):
                if seen.all():
                    break
                seen[two[seen[one] & (out[edges] > 0.0)]] = True
                seen[one[seen[two] & (back[edges] > 0.0)]] = True
            if int(seen.sum()) == before:
                break
        if not seen.all():
            return NotImplemented  # several components, or a long way: the kernel's
    strong[:] = sizes > 0
    return None


def _strengths(s: Floats) -> Floats | None:
    """As in ``links``; none where scores are too far apart."""
    low, high = min(0.0, float(s.min())), max(0.0, float(s.max()))
    return np.array([math.exp(v) for v in (s - 0.5 * (low + high)).tolist()]) if high - low < WIDEST else None


def _slopes(
    s: Floats, row: Offsets, to: Offsets, ahead: Floats, behind: Floats
) -> tuple[Floats, Floats, Floats] | None:
    """Gradient, diagonal, and the second derivative of every edge."""
    strength = _strengths(s)
    if strength is None:
        return None
    mine, theirs = strength[row], strength[to]
    share = 1.0 / (mine + theirs)
    slope = (behind * mine - ahead * theirs) * share
    curve = (ahead + behind) * (mine * share) * (theirs * share)
    size = len(s)
    gradient = np.asarray(np.bincount(to, -slope, size) + np.bincount(row, slope, size), dtype=np.float64)
    diagonal = np.asarray(np.bincount(to, curve, size) + np.bincount(row, curve, size), dtype=np.float64)
    return gradient, diagonal, curve


def _solve_step(
    row: Offsets, to: Offsets, curve: Floats, diagonal: Floats, gradient: Floats, closeness: float
) -> tuple[Floats, int]:
    """The step, and the sweeps over all edges that it took."""
    size = len(diagonal)
    scale = np.where(diagonal > 0.0, 1.0 / diagonal, 0.0)
    x, rest = np.zeros(size), -gradient
    ahead = scale * rest
    now = add_up(rest * ahead)
    goal = now * closeness * closeness
    whole, terms, less = np.concatenate([np.arange(size), to]), np.empty(size + len(to)), -curve
    sweeps = 0
    for _ in range(2 * (size + 1) + 10):
        if now <= goal or now == 0.0:
            break
        sweeps += 1
        np.multiply(diagonal, ahead, out=terms[:size])
        np.multiply(less, ahead[row], out=terms[size:])
        out = np.bincount(whole, terms, size) - np.bincount(row, curve * ahead[to], size)
        bend = add_up(ahead * out)
        if bend <= 0.0:
            break
        alpha, before = now / bend, now
        x += alpha * ahead
        rest -= alpha * out
        now = add_up(rest * rest * scale)
        ahead = scale * rest + now / before * ahead
        if sweeps * (len(row) + CALLS) > WORK:
            break  # ``fit_queries`` gives up
    return x, sweeps


@np.errstate(all="ignore")
def fit_queries(
    link: int, prior: int, weight: float, shape: float, tolerance: float, steps: int,
    item_offsets: Offsets, offsets: Offsets, other: Indices, ahead: Floats, behind: Floats, ties: Floats, score: Floats,
    eta: Floats, iterations: Offsets, left: Floats,
) -> Any:  # fmt: skip
    if link != LOGIT or len(ties) > QUERIES or len(other) > EDGES:
        return NotImplemented
    made, taken, far, work = score.copy(), iterations.copy(), left.copy(), 0
    for q in range(len(ties)):
        base, end = int(item_offsets[q]), int(item_offsets[q + 1])
        if base == end:
            continue
        edges = slice(int(offsets[base]), int(offsets[end]))
        row = np.repeat(np.arange(end - base), np.diff(offsets[base : end + 1]))
        pairs = row, other[edges].astype(np.int64), ahead[edges], behind[edges]
        s, start, taken[q] = score[base:end], score[base:end], 0
        x, tries, first, part = np.zeros(end - base), 0, np.float64(0.0), 1.0
        while True:
            if tries > 0:
                s = start + part * x
            found = _slopes(s, *pairs)
            work += len(row) + CALLS
            if found is None or work > WORK:
                return NotImplemented
            gradient, diagonal, curve = found
            if prior == GAUSSIAN:
                gradient, diagonal = gradient + weight * s, diagonal + weight
            elif prior == GAMMA:
                mean = weight * np.array([math.exp(v) for v in s.tolist()])
                gradient, diagonal = gradient + (mean - (shape - 1.0)), diagonal + mean
            now = add_up(gradient * x)
            good, tries = now <= -UPHILL * first, tries + 1
            if not good and tries < TRIES:
                part *= max(0.1, min(0.5, first / (first - now)))
                continue
            far[q] = np.max(np.abs(gradient) / diagonal, where=diagonal > 0.0, initial=0.0)
            if far[q] <= tolerance or taken[q] == steps or not good:
                break
            x, sweeps = _solve_step(*pairs[:2], curve, diagonal, gradient, min(0.02, far[q]))
            work += sweeps * (len(row) + CALLS)
            first, start, part, tries = add_up(gradient * x), s, 1.0, 1
            taken[q] += 1
        made[base:end] = s
    score[:], iterations[:], left[:] = made, taken, far
    return None


def _products(factors: Floats) -> tuple[Floats, float]:
    """Logarithms of products, each where it got too large, and of the last one."""
    logs, product, done = np.zeros(len(factors)), 1.0, 0
    while done < len(factors):
        run = np.cumprod(np.concatenate([[product], factors[done : done + 4096]]))[1:]
        size = int(np.argmax(run > FULL)) + 1 if run[-1] > FULL else len(run)
        product, done = float(run[size - 1]), done + size
        if product > FULL:
            logs[done - 1], product = math.log(product), 1.0
    return logs, math.log(product)


@np.errstate(all="ignore")
def log_likelihood(
    link: int, item_offsets: Offsets, offsets: Offsets, other: Indices, ahead: Floats, behind: Floats, ties: Floats,
    score: Floats, eta: Floats,
) -> Any:  # fmt: skip
    if link != LOGIT or len(ties) > QUERIES or len(other) > EDGES:
        return NotImplemented
    total = np.zeros(len(ties))
    for q in range(len(ties)):
        base, end = int(item_offsets[q]), int(item_offsets[q + 1])
        strength = _strengths(score[base:end]) if end > base else np.zeros(0)
        if strength is None:
            return NotImplemented
        row = np.repeat(np.arange(end - base), np.diff(offsets[base : end + 1]))
        edges = slice(int(offsets[base]), int(offsets[end]))
        to, mine, theirs = other[edges], ahead[edges], behind[edges]
        gap = score[base:end][row] - score[base:end][to]
        up, down = strength[row], strength[to]
        factor, count = 1.0 + np.minimum(up, down) / np.maximum(up, down), mine + theirs
        single = count == 1.0
        logs = np.empty(len(row))
        logs[single], last = _products(factor[single])
        logs[~single] = count[~single] * np.array([math.log(v) for v in factor[~single].tolist()])
        terms = np.stack([mine * np.minimum(gap, 0.0) + theirs * np.minimum(-gap, 0.0), -logs], axis=1)
        total[q] = add_up(np.concatenate([[0.0], terms.ravel(), [-last]]))
    return total
