from __future__ import annotations

import itertools

import numpy as np

from distagg.metrics.ranked import precision_at_hits, stop_probability, sums_at_cutoffs

OFFSETS = np.array([0, 5, 5, 6, 10])
OFFSETS.setflags(write=False)  # as in chunks


def spans() -> list[slice]:
    return [slice(a, b) for a, b in itertools.pairwise(OFFSETS)]


def test_sums_at_cutoffs() -> None:
    rng = np.random.default_rng(0)
    values, discounts = rng.random(10), rng.random(5)
    cutoffs = np.array([1, 2, 2, 4, np.iinfo(np.int64).max])
    sums = sums_at_cutoffs(OFFSETS, values, discounts, cutoffs)
    for q, span in enumerate(spans()):
        products = values[span] * discounts[: len(values[span])]
        np.testing.assert_allclose(sums[q], [products[:k].sum() for k in cutoffs])


def test_precision_at_hits() -> None:
    relevant = (np.random.default_rng(1).random(10) < 0.5).astype(np.float64)
    values = precision_at_hits(OFFSETS, relevant)
    for span in spans():
        own = relevant[span]
        wanted = [own[: i + 1].mean() if own[i] else 0.0 for i in range(len(own))]
        np.testing.assert_allclose(values[span], wanted)


def test_stop_probability() -> None:
    satisfied = np.random.default_rng(2).random(10)
    values = stop_probability(OFFSETS, satisfied)
    for span in spans():
        own = satisfied[span]
        np.testing.assert_allclose(values[span], [own[i] * np.prod(1 - own[:i]) for i in range(len(own))])
