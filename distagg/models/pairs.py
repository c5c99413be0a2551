"""Lists as pairs: settings that several models share, and the arrays of a chunk in the form that kernels take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import param
from distagg.models.compared import compared
from distagg.models.lists import (
    BINARY,
    DIFFERENCE,
    DISCOUNT,
    NORMALISED,
    PAIR_FUNCTIONS,
    Experts,
    Lists,
    Pairs,
    Sums,
    Values,
    discounted_places,
    pair_sums,
    pair_values,
)
from distagg.types import Floats, Offsets

KINDS_OF_PAIRS = (
    "what a pair counts: binary (1), difference (of ranks), normalised (that over the list's largest rank; of ratings, "
    "over the list's largest difference), log (difference of logarithms over the largest; not for ratings)"
)


def pairs_param() -> str:
    return param(
        "auto",
        KINDS_OF_PAIRS + " or auto (ratings: difference; other lists: binary); raw pairs count their weight",
        choices=("auto", *PAIR_FUNCTIONS),
    )


def discounted_pairs_param() -> str:
    return param(
        "auto",
        KINDS_OF_PAIRS + ", discount (difference of log(5 + place in the list), which suits short and deep lists) or "
        "auto (ratings: difference; other lists: discount where unlisted items stand last, else binary); raw pairs "
        "count their weight",
        choices=("auto", *PAIR_FUNCTIONS, "discount"),
    )


def unlisted_param() -> str:
    return param(
        "auto",
        "how to read a list that leaves an item out: last (it ranks one place behind the last listed item), ignore "
        "(the list says nothing about it) or auto (ratings: ignore; other lists: last); raw pairs leave nothing out",
        choices=("auto", "last", "ignore"),
    )


def rated(chunk: Chunk) -> bool:
    """Whether the lists hold ratings, whose ranks are minus the rating: 0 or less."""
    return bool(chunk.n_entries and chunk.entry_rank.min() <= 0.0)


def unlisted_last(unlisted: str, chunk: Chunk) -> bool:
    """Whether unlisted items stand last. With auto they do, except in ratings: a missing rating says nothing."""
    return not rated(chunk) if unlisted == "auto" else unlisted == "last"


def left_out(unlisted: str, chunk: Chunk) -> Offsets:
    """The number of unlisted items behind each list, shape (L,); 0 if they are not compared."""
    if not unlisted_last(unlisted, chunk):
        return np.zeros(chunk.n_lists, dtype=np.int64)
    sizes = np.repeat(np.diff(chunk.item_offsets), np.diff(chunk.list_offsets))
    return sizes - np.diff(chunk.entry_offsets)


def pair_function(model: str, pairs: str, chunk: Chunk, usual: int = BINARY) -> int:
    """The kernels' number for a pair function; by default ``usual`` for ranks. Refuses logarithms of ratings."""
    if pairs == "auto":
        return DIFFERENCE if rated(chunk) else usual
    if pairs == "log" and rated(chunk):
        raise UsageError(
            f"{model} with pairs=log needs ranks above 0, and the data are ratings; choose difference or normalised"
        )
    return DISCOUNT if pairs == "discount" else PAIR_FUNCTIONS[pairs]


def discounted_function(model: str, pairs: str, unlisted: str, chunk: Chunk) -> int:
    """The pair function of models that discount places: by default they do so if unlisted items are ranked last."""
    return pair_function(model, pairs, chunk, DISCOUNT if unlisted_last(unlisted, chunk) else BINARY)


def pair_ranks(chunk: Chunk, function: int) -> Floats:  # (E,)
    """The ranks of entries, as pair functions need them.

    The function ``normalised`` divides by a list's largest rank, which means something only if ranks count from the
    best item. So the ranks of ratings are shifted to start at 0: the largest is then the largest difference.
    """
    if function != NORMALISED or not rated(chunk):
        return chunk.entry_rank
    length = np.diff(chunk.entry_offsets)
    best = chunk.entry_rank[chunk.entry_offsets[:-1][length > 0]]
    rank: Floats = chunk.entry_rank - np.repeat(best, length[length > 0])
    rank.setflags(write=False)
    return rank


def rank_values(chunk: Chunk, out: Offsets, function: int) -> tuple[Floats, Floats]:  # (E,), (L,)
    """The values of a chunk's ranks by pair function; ``out`` (L,) counts each list's unlisted items."""
    if function == DISCOUNT:
        return discounted_places(chunk.entry_offsets, chunk.entry_rank, out)
    value, outside = pair_values(chunk.entry_offsets, pair_ranks(chunk, function), out, function)
    return value, outside


def list_values(chunk: Chunk, out: Offsets, function: int) -> Values:
    """The values of a chunk's ranks in one record; ``out`` (L,) counts each list's unlisted items."""
    return Values(*rank_values(chunk, out, function), out)


def list_sums(chunk: Chunk, out: Offsets, function: int) -> Sums:
    """What every entry of a chunk won and lost, and what unlisted items lost; ``out`` (L,) counts the latter."""
    value, outside = rank_values(chunk, out, function)
    return Sums(*pair_sums(chunk.entry_offsets, chunk.entry_rank, value, outside, out, function == BINARY))


def won_and_lost(model: str, chunk: Chunk, names: Sequence[str], reciprocal: float, top: int = 0) -> Floats:
    """A row for every entry: what it won, and minus what it lost, divided by the number of items of its query.

    Column 0 is -1 (the missing-expert bias), then come two columns for each pair function. The last column is
    c / (c + rank), unless c is 0. Raw pairs have a row for each item that an expert compared (``compared``): every pair
    function counts their weight, and the last column is 0, because they have no ranks. The pair function ``top`` counts
    1 where one item is among the first ``top`` of the list and the other, listed or unlisted, is not. What unlisted
    items lose so is subtracted from all items of the query, which changes no ranking: listed ones lose that much less.
    """
    check_ranks(model, chunk, names, reciprocal)
    if chunk.n_pairs:
        return _pairs_won_and_lost(chunk, len(names), reciprocal)
    values = np.zeros((chunk.n_entries, 1 + 2 * len(names) + (reciprocal > 0)))
    values[:, 0] = -1.0
    nobody = np.zeros(chunk.n_lists, dtype=np.int64)
    entries = np.diff(chunk.entry_offsets[chunk.list_offsets])
    share = np.repeat(1.0 / np.maximum(np.diff(chunk.item_offsets), 1), entries)
    for n, name in enumerate(names):
        if name == "top":
            won, lost = _top_sums(chunk, top)
        else:
            won, lost, _ = list_sums(chunk, nobody, PAIR_FUNCTIONS[name])
        values[:, 1 + 2 * n], values[:, 2 + 2 * n] = won * share, -lost * share
    if reciprocal:
        values[:, -1] = reciprocal / (reciprocal + chunk.entry_rank)
    return values


def _top_sums(chunk: Chunk, top: int) -> tuple[Floats, Floats]:  # (E,), (E,)
    """What entries won and lost by the pair function ``top``; an entry that ties with the last of them is one, too."""
    length, items = np.diff(chunk.entry_offsets), np.repeat(np.diff(chunk.item_offsets), np.diff(chunk.list_offsets))
    last = chunk.entry_offsets[:-1] + np.minimum(length, top) - 1
    some = length > 0
    is_top = chunk.entry_rank <= np.repeat(chunk.entry_rank[last[some]], length[some])
    holder = np.repeat(np.arange(chunk.n_lists), length)
    count = np.bincount(holder, is_top, chunk.n_lists)
    return np.where(is_top, (items - count)[holder], 0.0), np.where(is_top, -count[holder], 0.0)


def _pairs_won_and_lost(chunk: Chunk, functions: int, reciprocal: float) -> Floats:
    lists, won, lost = compared(chunk)
    items = np.maximum(np.diff(chunk.item_offsets), 1)
    share = np.repeat(1.0 / items, np.diff(lists.entry_offsets[lists.list_offsets]))
    sums = np.stack([won * share, -lost * share], axis=1)
    ends = np.full((len(won), 1), -1.0), np.zeros((len(won), int(reciprocal > 0)))
    return np.concatenate([ends[0], np.tile(sums, functions), ends[1]], axis=1)


def check_ranks(model: str, chunk: Chunk, names: Sequence[str], reciprocal: float) -> None:
    """Refuse settings that have no meaning for ratings."""
    if ("log" in names or reciprocal) and rated(chunk):
        raise UsageError(
            f"{model} with pairs=log or reciprocal needs ranks above 0, and the dataset holds ratings; choose "
            "pairs=binary+normalised and reciprocal=0"
        )


def won_and_lost_names(names: Sequence[str], reciprocal: float) -> tuple[str, ...]:
    """The columns of ``won_and_lost``."""
    pairs = [f"{name} {end}" for name in names for end in ("won", "lost")]
    return ("missing", *pairs, *(["reciprocal"] if reciprocal else []))


def list_arrays(chunk: Chunk) -> Lists:
    """A chunk's lists, as kernels take them."""
    return Lists(chunk.item_offsets, chunk.list_offsets, chunk.entry_offsets, chunk.entry_item, chunk.entry_rank)


def pair_arrays(chunk: Chunk) -> Pairs:
    """A chunk's raw pairs, as kernels take them."""
    return Pairs(chunk.pair_offsets, chunk.pair_winner, chunk.pair_loser, chunk.pair_weight, chunk.pair_tie)


def expert_arrays(chunk: Chunk) -> Experts:
    """The experts of a chunk's lists and raw pairs."""
    return Experts(chunk.list_expert, chunk.pair_expert)
