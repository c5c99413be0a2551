"""What a ranking shows beside its scores when asked: support, titles, and how sure ranks are by the bootstrap."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.dataset.chunk import Chunk
from distagg.dataset.reader import Dataset
from distagg.engine.fit import gather, split_query
from distagg.engine.runner import Runner, Work
from distagg.errors import UsageError
from distagg.kernels.lists import BINARY
from distagg.kernels.ordering import order_items
from distagg.models import Model, Params
from distagg.models.base import Statistics
from distagg.models.pairs import list_sums
from distagg.types import Floats

SUPPORT = ("experts", "won", "lost")
DOUBT = ("deviation", "rank_low", "rank_high")
INTERVAL = (2.5, 97.5)  # percent
TYPES = dict.fromkeys(("experts", "won", "lost"), pa.int64()) | {
    "deviation": pa.float64(), "rank_low": pa.int32(), "rank_high": pa.int32(), "title": pa.string(),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shown:
    """What to show beside scores.

    ``support`` adds experts, won, lost; ``least`` leaves out items that fewer experts list; ``titles`` adds titles;
    ``resamples`` draws the experts so often again, from ``seed``, and adds deviation, rank_low, rank_high.
    ``known`` and ``names`` are the engine's: what it gathered for each chunk, and the titles.
    """

    support: bool = False
    least: int = 0  # experts that must list an item for it to be ranked
    titles: bool = False
    resamples: int = 0
    seed: int = 0
    known: tuple[Statistics, ...] = ()
    names: pa.Table | None = None

    def __post_init__(self) -> None:
        if self.least < 0:
            raise UsageError(f"minimum support: found {self.least}, expected 0 or more")
        if self.resamples < 0 or self.resamples == 1:
            raise UsageError(f"bootstrap: found {self.resamples} draws, expected at least 2")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are added."""
        support = SUPPORT if self.support else ()
        doubt = DOUBT if self.resamples else ()
        return (*support, *doubt, *(("title",) if self.titles else ()))

    def items_of(self, chunk: Chunk, index: int) -> Statistics:
        """The columns of a chunk's items."""
        items = self.known[index] if self.known else {}
        if (self.support or self.least) and "experts" not in items:
            items = items | count_support(chunk)
        return items

    def title_of(self, items: pa.Array) -> pa.Array:
        """Titles of items, null where there is none."""
        assert self.names is not None
        return self.names["title"].take(pc.index_in(items, self.names["item"].combine_chunks())).combine_chunks()


def prepared(shown: Shown, model: Model, params: Params, dataset: Dataset, runner: Runner) -> Shown:
    """With what takes a look at the whole dataset: support of a split query, draws, titles."""
    known: list[Statistics] = []
    if shown.resamples:
        known = bootstrap(shown, model, params, dataset, runner)
    if (shown.support or shown.least) and split_query(dataset):
        support = runner.map_reduce(Work(_support_task, None), dataset.plan(), _add) or {}
        known = [{**support, **(known[0] if known else {})}]
    names = dataset.titles if shown.titles else None
    if shown.titles and (names is None or "title" not in names.column_names):
        raise UsageError(f"{dataset.path or 'the dataset'} has no titles; import it with --items")
    return replace(shown, known=tuple(known), names=names)


def count_support(chunk: Chunk) -> Statistics:
    """How many experts list each item, and in how many of their pairs it stands ahead and behind; (I,) each."""
    rows = chunk.entry_row()
    won, lost, _ = list_sums(chunk, np.zeros(chunk.n_lists, dtype=np.int64), BINARY)
    counts = [np.bincount(rows, weights, chunk.n_items) for weights in (None, won, lost)]
    if chunk.n_pairs:
        base = np.repeat(chunk.item_offsets[:-1], np.diff(chunk.pair_offsets))
        sides = np.stack([base + chunk.pair_winner, base + chunk.pair_loser])
        said = np.unique(sides * chunk.n_experts + chunk.pair_expert)
        counts[0] = counts[0] + np.bincount(said // chunk.n_experts, minlength=chunk.n_items)
        for at in (0, 1):
            counts[1 + at] = counts[1 + at] + np.bincount(sides[at][~chunk.pair_tie], minlength=chunk.n_items)
    return dict(zip(SUPPORT, (count.astype(np.int64) for count in counts), strict=True))


def bootstrap(shown: Shown, model: Model, params: Params, dataset: Dataset, runner: Runner) -> list[Statistics]:
    """For each chunk, deviation of scores and interval of ranks over experts drawn with replacement, fitted anew."""
    draws: list[list[tuple[Floats, np.ndarray]]] = []
    for number in range(shown.resamples):
        again = dataset.select(draw=(shown.seed, number))
        gathered = gather(model, params, again, runner)
        refs = again.plan()[:1] if split_query(again) else again.plan()
        draws.append(list(runner.map(Work(_place_task, (model, gathered)), refs)))
    found = []
    for pieces in zip(*draws, strict=True):
        low, high = np.percentile(np.stack([rank for _, rank in pieces]), INTERVAL, axis=0, method="nearest")
        deviation = np.std(np.stack([score for score, _ in pieces]), axis=0, ddof=1)
        found.append({"deviation": deviation, "rank_low": low, "rank_high": high})
    return found


def _support_task(chunk: Chunk, index: int, payload: None) -> Statistics:
    return count_support(chunk)


def _add(a: Statistics, b: Statistics) -> Statistics:
    return {name: a[name] + b[name] for name in a}


def _place_task(chunk: Chunk, index: int, payload: tuple[Model, Params]) -> tuple[Floats, np.ndarray]:
    """Scores and ranks (from 1) of a chunk's items."""
    model, params = payload
    score = model.score(chunk, params)
    starts = np.repeat(chunk.item_offsets[:-1], np.diff(chunk.item_offsets))
    rank = np.empty(chunk.n_items, dtype=np.int32)
    rank[starts + order_items(chunk.item_offsets, score)] = np.arange(chunk.n_items) - starts + 1
    return score, rank
