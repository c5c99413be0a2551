"""Random lists and ratings around a planted truth, a block of queries or experts at a time.

An item has a true score t ~ N(0, 1); an expert of quality a sees a t + sqrt(1 - a^2) N(0, 1), so that quality is the
correlation of what it sees with the truth: near 1 good, 0 random, below 0 adversarial. Everything about block b comes
from ``SeedSequence([seed, stream, b])``, so that any block can be drawn again on its own. Cost: linear in the cells of
a block, plus a sort of its entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from distagg.types import Floats, Offsets

EXPERTS, LISTS, RATED, RATINGS = range(4)  # streams of random numbers
KINDS = ("good", "random", "adversarial")
DEPTH = (250, 530)  # how far down an engine's full list goes
_TOP_HEAVY = 2.7  # makes half of the positions fall in the first 60, as in MQ2008

Ints = NDArray[np.int64]


def random_numbers(*key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(key))


@dataclass(frozen=True, slots=True, eq=False)
class PlantedExperts:
    """The experts: kind (a row of KINDS), quality, and mean share of the items that each lists."""

    kind: Ints
    quality: Floats
    share: Floats


def plant_experts(n: int, *, seed: int, missing: float, random: float, adversarial: float) -> PlantedExperts:
    """Experts of which a few are excellent, most fair, some random and some adversarial, in mixed order."""
    rng = random_numbers(seed, EXPERTS)
    n_random, n_adversarial = round(random * n), round(adversarial * n)
    n_good = n - n_random - n_adversarial
    excellent = -(-n_good // 8)
    quality = np.concatenate(
        [
            np.full(excellent, 0.75),
            np.linspace(0.4, 0.1, n_good - excellent),
            np.zeros(n_random),
            np.full(n_adversarial, -0.4),
        ]
    )
    kind = np.repeat(np.arange(3), [n_good, n_random, n_adversarial])
    order = rng.permutation(n)
    # Even steps around the mean, so that the share of missing cells is right even with few experts.
    spread = 0.6 * min(missing, 1 - missing)
    steps = (np.arange(n) + 0.5) / n * 2 - 1
    share = (1 - missing) + spread * rng.permutation(steps)
    return PlantedExperts(kind[order], quality[order], share)


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Lists of a block of Q queries, E entries, ordered by query, expert and rank."""

    item_offsets: Offsets  # (Q + 1,)
    truth: Floats  # (items,)
    query: Ints  # (E,) in the block
    expert: Ints  # (E,)
    item: Ints  # (E,) row of the block
    rank: Ints  # (E,)


def plant_truth(
    key: tuple[int, int], n_queries: int, mean_items: float, spread: tuple[Floats, Floats]
) -> tuple[np.random.Generator, Offsets, Floats]:
    """Item offsets and true scores of a block, and the generator to go on with.

    ``spread`` is the quantile function of the number of items, relative to its mean.
    """
    rng = random_numbers(key[0], LISTS, key[1])
    sizes = np.maximum(1, np.rint(mean_items * np.interp(rng.random(n_queries), *spread))).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return rng, offsets, rng.standard_normal(offsets[-1])


def plant_lists(
    rng: np.random.Generator, offsets: Offsets, truth: Floats, experts: PlantedExperts, missing: float
) -> Lists:
    """The experts' lists of a block: items seen above a threshold, at positions of a longer list."""
    n_queries, n_experts, n_items = len(offsets) - 1, len(experts.quality), len(truth)
    jitter = 0.4 * min(missing, 1 - missing)
    share = experts.share + jitter * rng.uniform(-1, 1, (n_queries, n_experts))
    depth = rng.integers(*DEPTH, (n_queries, n_experts)).ravel()
    sizes = np.diff(offsets)

    seen = rng.standard_normal((n_items, n_experts), dtype=np.float32)
    seen *= np.sqrt(1 - experts.quality**2).astype(np.float32)
    seen += truth[:, None].astype(np.float32) * experts.quality.astype(np.float32)
    threshold = np.repeat(ndtri(1 - share).astype(np.float32), sizes, axis=0)
    cells = np.flatnonzero(seen > threshold)
    item, expert = np.divmod(cells, n_experts)
    query = np.repeat(np.arange(n_queries), sizes)[item]
    a_list = query * n_experts + expert

    # Among listed items the tail probability over the share is uniform: the item's place in the full list.
    place = ndtr(-seen.ravel()[cells]) / share.ravel()[a_list].astype(np.float32)
    a_list, place, item = _sort_lists(a_list, place, item, n_items)
    query, expert = np.divmod(a_list, n_experts)
    wanted = np.ceil(depth[a_list] * place.astype(np.float32) ** np.float32(_TOP_HEAVY)).astype(np.int64)
    return Lists(offsets, truth, query, expert, item, _distinct(wanted, a_list))


def _sort_lists(a_list: Ints, place: NDArray[np.float32], item: Ints, n_items: int) -> tuple[Ints, Floats, Ints]:
    """Sort entries by list and position. Packed into one integer each, they sort faster than with argsort."""
    item_bits = int(n_items).bit_length()
    place_bits = min(24, 63 - item_bits - int(a_list[-1] if len(a_list) else 0).bit_length())
    scale = 1 << place_bits
    steps = np.minimum((place * np.float32(scale)).astype(np.int64), scale - 1)
    packed = np.sort((((a_list << place_bits) | steps) << item_bits) | item)
    item = packed & ((1 << item_bits) - 1)
    steps = (packed >> item_bits) & (scale - 1)
    return packed >> (item_bits + place_bits), (steps + 0.5) / scale, item


def _distinct(wanted: Ints, a_list: Ints) -> Ints:
    """The least strictly ascending positions in each list that are not above the wanted ones (ascending in a list)."""
    n = len(wanted)
    starts = np.flatnonzero(np.diff(a_list, prepend=-1))
    sizes = np.diff(starts, append=n)
    within = np.arange(n) - np.repeat(starts, sizes)
    lift = np.repeat(np.arange(len(starts)) * (DEPTH[1] + 1 + int(sizes.max(initial=0))), sizes)  # lists stay apart
    return np.asarray(np.maximum.accumulate(wanted - within + lift) - lift + within)


def plant_rated(n_items: int, seed: int) -> tuple[Floats, Ints]:
    """True scores of the items and their order by popularity; good items are a little more popular."""
    rng = random_numbers(seed, RATED)
    truth = rng.standard_normal(n_items)
    return truth, np.argsort(-(0.4 * truth + rng.standard_normal(n_items)), kind="stable")


def plant_ratings(
    key: tuple[int, int], truth: Floats, popular: Ints, quality: Floats, mean_ratings: float
) -> tuple[Ints, Ints, Floats]:
    """Expert (in the block), item and rating 1..5 of a block of experts: few rate much, few items are rated much."""
    rng = random_numbers(key[0], RATINGS, key[1])
    n_experts, n_items = len(quality), len(truth)
    least = min(20.0, mean_ratings / 2)
    activity = least + (mean_ratings - least) * rng.lognormal(-0.5, 1.0, n_experts)  # of mean 1
    wanted = np.clip(np.rint(activity), 1, max(1, 0.7 * n_items)).astype(np.int64)
    rated = np.zeros(0, np.int64)
    owner = np.arange(n_experts)
    for _ in range(6):  # draw duplicates again; drop the few that remain
        short = wanted - np.bincount(rated // n_items, minlength=n_experts)
        drawn = np.repeat(owner, short) * n_items + popular[_by_popularity(rng, int(short.sum()), n_items)]
        rated = np.sort(np.concatenate([rated, drawn]))
        rated = rated[np.concatenate([[True], rated[1:] != rated[:-1]])[: len(rated)]]
    expert, item = np.divmod(rated, n_items)
    bias = rng.normal(3.5, 0.4, n_experts)
    noise = rng.standard_normal(len(rated), dtype=np.float32)
    opinion = quality[expert] * truth[item] + np.sqrt(1 - quality**2)[expert] * noise
    return expert, item, np.clip(np.rint(bias[expert] + opinion), 1, 5)


def _by_popularity(rng: np.random.Generator, n: int, n_items: int) -> Ints:
    """Popularity ranks from 0 with odds (rank + c)^-0.8, by inverting the distribution function."""
    c = 1 + n_items / 100
    low, high = c**0.2, (n_items + c) ** 0.2
    ranks: Ints = np.minimum((low + (high - low) * rng.random(n)) ** 5 - c, n_items - 1).astype(np.int64)
    return ranks
