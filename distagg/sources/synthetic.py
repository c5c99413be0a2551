"""Synthetic data of any size with a planted truth, shaped like MQ2008-agg, MQ2007-agg or MovieLens.

The experts' names say who is good, random or adversarial; labels are the planted scores, cut at the quantiles of the
real label shares. Blocks are drawn one after another, so that memory does not grow with the size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import ndtri

from distagg.errors import UsageError, unknown
from distagg.sources.planted import (
    KINDS,
    Lists,
    plant_experts,
    plant_lists,
    plant_rated,
    plant_ratings,
    plant_truth,
)
from distagg.sources.source import SourceTable
from distagg.types import ITEMS, Floats

N_PARTS = 5  # as in LETOR, for its five folds
BLOCK_CELLS = 1 << 18
BLOCK_QUERIES = 256
BLOCK_EXPERTS = 1024
NO_QUERY = "all"


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes and shares of a real data set."""

    queries: int
    items: int  # a query, on average
    experts: int
    missing: float
    relevant: tuple[float, float]  # shares of labels of at least 1, and of 2
    size_at: tuple[float, ...] = (0, 1)  # quantiles of the number of items of a query
    size: tuple[float, ...] = (1, 1)


SHAPES = {
    "mq2008": Shape(
        784, 20, 25, 0.65, (0.193, 0.0612), (0, 0.05, 0.1, 0.5, 0.75, 0.9, 0.95, 1), (5, 7, 8, 8, 16, 32, 60, 121)
    ),
    "mq2007": Shape(1692, 41, 21, 0.348, (0.258, 0.0555), (0, 0.05, 0.9, 0.95, 1), (6, 40, 40, 50, 147)),
    "movielens": Shape(1, 1682, 943, 0.937, (0.193, 0.0612)),
}


class SyntheticSource:
    """Planted rankings. Query "q7", its item "q7-d3" and expert "good-0" are numbered by position, from 0.

    Parameters
    ----------
    queries, items, experts
        Numbers of each (items: a query, on average); by default those of the shape.
    shape
        "mq2008", "mq2007", or "movielens": one query, ratings by many experts, partitioned by expert.
    missing
        Share of (item, expert) cells without a rank.
    random, adversarial
        Shares of such experts; the others are good.
    seed
        The same seed gives the same data for any batch.
    batch
        Queries (movielens: experts) in one table.

    >>> source = SyntheticSource(10, seed=1)
    >>> next(source.tables()).table.slice(0, 1).to_pylist()
    [{'query': 'q0', 'item': 'q0-d0', 'label': 0}]
    >>> len(source.truth(0)), source.expert_names[0], round(float(source.qualities[0]), 2)
    (9, 'good-0', 0.75)
    """

    name = "synthetic"
    files: tuple[Path, ...] = ()

    def __init__(
        self,
        queries: int | None = None,
        items: int | None = None,
        experts: int | None = None,
        *,
        shape: str = "mq2008",
        missing: float | None = None,
        random: float = 0.25,
        adversarial: float = 0.1,
        seed: int = 0,
        batch: int = 4096,
    ) -> None:
        if shape not in SHAPES:
            raise unknown("shape", shape, SHAPES)
        self.shape, self._like = shape, SHAPES[shape]
        self.partition: Literal["query", "expert"] = "expert" if shape == "movielens" else "query"
        self.queries = self._like.queries if queries is None else queries
        self.items = self._like.items if items is None else items
        self.experts = self._like.experts if experts is None else experts
        self.missing = self._like.missing if missing is None else missing
        self.seed, self.batch = seed, batch
        self._check(random, adversarial)
        self._experts = plant_experts(
            self.experts, seed=seed, missing=self.missing, random=random, adversarial=adversarial
        )
        self.qualities: Floats = self._experts.quality
        self.expert_names: list[str] = [f"{KINDS[kind]}-{at}" for at, kind in enumerate(self._experts.kind.tolist())]
        sizes = np.array(self._like.size, float)
        self._spread = np.array(self._like.size_at, float), sizes / np.trapezoid(sizes, self._like.size_at)
        self._block_queries = int(np.clip(BLOCK_CELLS // (self.items * self.experts), 1, BLOCK_QUERIES))
        self._drawn: tuple[int, Lists] | None = None  # the last block, because the next batch may need it again

    def _check(self, random: float, adversarial: float) -> None:
        for name in ("queries", "items", "experts", "batch"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.seed < 0:
            raise UsageError(f"seed is {self.seed}; give at least 0")
        if not 0 <= self.missing < 1:
            raise UsageError(f"missing is {self.missing}; give a share from 0 to below 1")
        if min(random, adversarial) < 0 or random + adversarial > 1:
            raise UsageError(f"random {random} and adversarial {adversarial} must be shares that add to at most 1")
        if self.shape == "movielens" and self.queries != 1:
            raise UsageError(f"queries is {self.queries}; the movielens shape has one query")

    def truth(self, query: int = 0) -> Floats:
        """The planted scores of a query's items, larger is better."""
        if not 0 <= query < self.queries:
            raise UsageError(f"query is {query}; give a position from 0 to {self.queries - 1}")
        if self.shape == "movielens":
            return plant_rated(self.items, self.seed)[0]
        block, at = divmod(query, self._block_queries)
        _, offsets, truth = plant_truth((self.seed, block), self._block_queries, self.items, self._spread)
        return truth[offsets[at] : offsets[at + 1]]

    def tables(self) -> Iterator[SourceTable]:
        """Per batch, items with their labels and then entries; parts "S1" to "S5" share the queries evenly."""
        if self.shape == "movielens":
            yield from self._rating_tables()
            return
        for part in range(N_PARTS):
            first, end = (-(-self.queries * at // N_PARTS) for at in (part, part + 1))
            while first < end:
                last = min(end, (first // self.batch + 1) * self.batch)
                yield from self._list_tables(first, last, f"S{part + 1}")
                first = last

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """The file and line of a row: none, because synthetic data have no files."""
        return []

    def _block(self, block: int) -> Lists:
        if self._drawn is None or self._drawn[0] != block:
            rng, offsets, truth = plant_truth((self.seed, block), self._block_queries, self.items, self._spread)
            self._drawn = block, plant_lists(rng, offsets, truth, self._experts, self.missing)
        return self._drawn[1]

    def _list_tables(self, first: int, last: int, part: str) -> Iterator[SourceTable]:
        """The two tables of queries first .. last - 1."""
        size = self._block_queries
        sizes, truths, columns = [], [], []
        n_items = 0
        for block in range(first // size, -(-last // size)):
            lists = self._block(block)
            low, high = max(first - block * size, 0), min(last - block * size, size)
            entries = slice(*np.searchsorted(lists.query, [low, high]))
            rows = slice(lists.item_offsets[low], lists.item_offsets[high])
            sizes.append(np.diff(lists.item_offsets[low : high + 1]))
            truths.append(lists.truth[rows])
            columns.append(
                (
                    lists.query[entries] + (block * size - first),
                    lists.expert[entries],
                    lists.item[entries] + (n_items - rows.start),
                    lists.rank[entries],
                )
            )
            n_items += rows.stop - rows.start
        query, expert, item, rank = (np.concatenate(column) for column in zip(*columns, strict=True))
        n_of = np.concatenate(sizes)
        names = pc.binary_join_element_wise("q", pa.array(np.arange(first, last)).cast(pa.string()), "")
        names_of_items = names.take(pa.array(np.repeat(np.arange(last - first), n_of)))
        within = np.arange(n_items) - np.repeat(np.cumsum(n_of) - n_of, n_of)
        ids = pc.binary_join_element_wise(names_of_items, pa.array(within).cast(pa.string()), "-d")
        items = pa.table([names_of_items, ids, self._labels(np.concatenate(truths))], schema=ITEMS)
        entries_table = pa.table(
            {
                "query": _dictionary(query, names),
                "expert": _dictionary(expert, pa.array(self.expert_names)),
                "item": ids.take(pa.array(item)),
                "rank": pa.array(rank.astype(np.float64)),
            }
        )
        yield SourceTable("items", items, part)
        yield SourceTable("entries", entries_table, part)

    def _rating_tables(self) -> Iterator[SourceTable]:
        truth, popular = plant_rated(self.items, self.seed)
        ids = pc.binary_join_element_wise("d", pa.array(np.arange(self.items)).cast(pa.string()), "")
        query = pa.array([NO_QUERY])
        yield SourceTable("items", pa.table([pa.repeat(NO_QUERY, self.items), ids, self._labels(truth)], ITEMS), "S1")
        mean = (1 - self.missing) * self.items
        size = int(np.clip(BLOCK_CELLS // mean, 1, BLOCK_EXPERTS))
        names = pa.array(self.expert_names)
        drawn: list[tuple[np.ndarray, ...]] = []
        first = 0
        for block, start in enumerate(range(0, self.experts, size)):
            quality = self.qualities[start : start + size]
            expert, item, rating = plant_ratings((self.seed, block), truth, popular, quality, mean)
            drawn.append((expert + (start - first), item, rating))
            end = start + len(quality)
            if end - first >= self.batch or end == self.experts:
                expert, item, rating = (np.concatenate(column) for column in zip(*drawn, strict=True))
                columns = {
                    "query": _dictionary(np.zeros(len(item)), query),
                    "expert": _dictionary(expert, names.slice(first, end - first)),
                    "item": ids.take(pa.array(item)),
                    "rank": pa.array(-rating),
                }
                yield SourceTable("entries", pa.table(columns), "S1")
                drawn, first = [], end

    def _labels(self, truth: Floats) -> pa.Array:
        cuts = ndtri(1 - np.array(self._like.relevant))
        return pa.array(np.searchsorted(cuts, truth, side="right").astype(np.int32))


def _dictionary(codes: np.ndarray, words: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), words)
