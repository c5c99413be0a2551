"""Utilities of ranks as sums of exponentials: utility(r) = sum_t weight_t ratio_t^r for r = 0 .. size - 1.

A rank that counts independent contests has E[ratio^R] = prod(1 - p (1 - ratio)), so a utility in this form has its
expectation over the rank distribution in closed form (paper 004, section 4.1, without its recursion). Utilities that
fall smoothly need few terms: 1 / (60 + r) takes about 14 for 20 ranks and 45 for 100,000, to 1e-12.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distagg.kernels.jit import kernel
from distagg.types import OFFSET, Floats, Offsets

STEP = 0.25  # candidates: rates e^(-u), u a geometric series
SHARPEST, FLATTEST = 36.0, 0.3  # from e^-36 at the scale of the first ranks to nearly 1 at the last
POINTS = 200  # ranks looked at beyond the first hundred, spaced by their logarithm


def exponential_terms(
    utility: Callable[[Floats], Floats], size: int, scale: float, tolerance: float = 1e-14
) -> tuple[Floats, Floats]:
    """Ratios and weights of a positive, falling utility of ranks 0 .. size - 1, by least squares of relative errors.

    Candidates are taken one by one, each time the one that those already taken describe worst, until ``tolerance``.
    ``scale``: by how many ranks the utility changes at its top, at the least. Sums are plain ones, not a library's that
    would depend on the number of its threads.

    >>> ratio, weight = exponential_terms(lambda r: 1.0 / (60.0 + r), 50, 60.0)
    >>> bool(abs((weight * ratio**7).sum() * 67.0 - 1.0) < 1e-12)
    True
    """
    rank = np.zeros(1)
    if size > 1:
        rank = np.unique(np.concatenate([np.arange(min(size, 100.0)), np.geomspace(1.0, size - 1.0, POINTS)]))
    low, high = np.log(FLATTEST / (size + scale)), np.log(SHARPEST / scale)
    rate = np.concatenate([[0.0], np.exp(np.arange(low, high + STEP, STEP))])
    columns = np.exp(-np.outer(rate, rank)) / utility(rank)
    left, rest = columns.copy(), np.ones(len(rank))
    floor = tolerance**2 * float((left * left).sum(axis=1).max())
    taken: list[int] = []
    basis: list[Floats] = []
    share: list[float] = []
    for _ in range(min(columns.shape)):
        square = (left * left).sum(axis=1)
        best = int(square.argmax())
        if square[best] <= floor:
            break
        one = columns[best]
        for _ in range(2):  # twice, for orthogonality to the last digit
            for other in basis:
                one = one - (other * one).sum() * other
        one = one / np.sqrt((one * one).sum())
        taken.append(best)
        basis.append(one)
        share.append(float((one * rest).sum()))
        rest = rest - share[-1] * one
        left -= (left * one).sum(axis=1)[:, None] * one
    weight = np.zeros(len(taken))
    for i in reversed(range(len(taken))):
        known = sum(weight[j] * (basis[i] * columns[taken[j]]).sum() for j in range(i + 1, len(taken)))
        weight[i] = (share[i] - known) / (basis[i] * columns[taken[i]]).sum()
    return np.exp(-rate[taken]), weight


def terms_by_class(
    utility: Callable[[Floats], Floats], largest: int, scale: float, tolerance: float = 1e-14
) -> tuple[Offsets, Floats, Floats]:
    """The terms for sizes up to 2^0, 2^1, .. 2^largest, one after the other: where each class starts, ratios, weights.

    Which terms a query takes depends on its own size alone.
    """
    made = [exponential_terms(utility, 1 << n, scale, tolerance) for n in range(largest + 1)]
    starts = np.concatenate([[0], np.cumsum([len(ratio) for ratio, _ in made])]).astype(OFFSET)
    return starts, np.concatenate([ratio for ratio, _ in made]), np.concatenate([weight for _, weight in made])


def size_class(size: int) -> int:
    """The smallest b with size <= 2^b: terms are made for classes of sizes, not for every size."""
    return max(int(size) - 1, 0).bit_length()


@kernel
def class_terms(size: int, starts: Offsets, ratio: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Ratios and weights of the terms for queries of so many items, out of those of ``terms_by_class``, if any."""
    if len(ratio) == 0:
        return ratio, weight
    scope = 0
    while (1 << scope) < size:
        scope += 1
    first, last = starts[scope], starts[scope + 1]
    return ratio[first:last], weight[first:last]
