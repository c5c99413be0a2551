"""Synthetic retrieval runs with a planted truth: deep lists out of large collections, judged in pools.

The shape of an evaluation campaign: some hundred runs by a few groups, each with the first 1,000 of many thousand
documents, and labels for the documents that some run has near its top. A document has a true score t ~ N(0, 1). Run e
of group g sees ``q t + sqrt(1 - q^2) (sqrt(s) u_g + sqrt(1 - s) u_e)``, with its quality q, a noise u_g that all runs
of the group share, and a noise u_e of its own; its list holds the ``depth`` documents that it sees highest. The best
few documents of the truth are relevant. Everything about query k comes from ``SeedSequence([seed, k + 1])``.
Cost: documents x runs of a query.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.errors import UsageError
from distagg.sources.planted import KINDS, random_numbers
from distagg.sources.source import SourceTable
from distagg.types import ITEMS, Floats

RELEVANT = ((3, 10), (2, 20), (1, 60))  # grade, and number of documents of a query that have it
POOLED = 10  # the first so many of every run are judged
WORST = -1  # the label of two documents of the first query: judged as spam
SPREAD = (0.55, 1.55)  # documents of a query, relative to their mean
QUALITY = (0.35, 0.85)  # of runs that are neither random nor adversarial
GROUP_NOISE = 0.6  # the share of a run's noise that its group has in common
RUNS_OF_A_GROUP = 12
PART = 10  # queries with the same part


class DeepSource:
    """Runs of ``depth`` documents each. Query "q7", its item "q7-d3" and expert "good-0" are numbered from 0.

    Parameters
    ----------
    queries, experts
        Numbers of each.
    items
        Documents of a query, on average; lists hold the best ``depth`` of those that their run knows.
    depth
        Length of a list.
    missing
        Share of the documents that a run does not know; it lowers the overlap of lists.
    random, adversarial
        Shares of such experts; the others are good.
    seed
        The same seed gives the same data, and more queries begin with the same ones.

    >>> source = DeepSource(2, items=300, experts=4, depth=20)
    >>> [(table.kind, len(table.table)) for table in source.tables()][0]
    ('entries', 80)
    >>> source.expert_names
    ['good-0', 'good-1', 'good-2', 'good-3']
    """

    name = "synthetic"
    partition: Literal["query", "expert"] = "query"
    files: tuple[Path, ...] = ()

    def __init__(
        self,
        queries: int = 50,
        items: int = 11_000,
        experts: int = 126,
        *,
        depth: int = 1000,
        missing: float = 0.0,
        random: float = 0.1,
        adversarial: float = 0.0,
        seed: int = 0,
    ) -> None:
        for name, value in (("queries", queries), ("items", items), ("experts", experts), ("depth", depth)):
            if value < 1:
                raise UsageError(f"{name} is {value}; give at least 1")
        if seed < 0:
            raise UsageError(f"seed is {seed}; give at least 0")
        if not 0 <= missing < 1:
            raise UsageError(f"missing is {missing}; give a share from 0 to below 1")
        if min(random, adversarial) < 0 or random + adversarial > 1:
            raise UsageError(f"random {random} and adversarial {adversarial} must be shares that add to at most 1")
        self.queries, self.items, self.experts, self.depth = queries, items, experts, depth
        self.missing, self.seed = missing, seed
        n_random, n_adversarial = round(random * experts), round(adversarial * experts)
        n_good = experts - n_random - n_adversarial
        rng = random_numbers(seed)
        order = rng.permutation(experts)
        good = np.linspace(*QUALITY, n_good)
        quality = np.concatenate([good, np.full(n_random, 0.1), np.full(n_adversarial, -0.4)])
        kind = np.repeat(np.arange(3), [n_good, n_random, n_adversarial])[order]
        self.qualities: Floats = quality[order]
        self.expert_names: list[str] = [f"{KINDS[k]}-{at}" for at, k in enumerate(kind.tolist())]
        self._groups = rng.integers(0, -(-experts // RUNS_OF_A_GROUP), experts)

    def truth(self, query: int = 0) -> Floats:
        """The planted scores of a query's documents, larger is better."""
        return self._plant(query)[1]

    def tables(self) -> Iterator[SourceTable]:
        """Per query, entries with scores and then judgements; ten queries have the same part."""
        names = pa.array(self.expert_names)
        for query in range(self.queries):
            rng, truth = self._plant(query)
            expert, item, rank, score = self._lists(rng, truth)
            judged = np.unique(item[rank <= POOLED])
            label = _grades(truth)[judged]
            if query == 0:
                label[np.flatnonzero(label == 0)[:2]] = WORST
            ids = pc.binary_join_element_wise(f"q{query}", pa.array(np.arange(len(truth))).cast(pa.string()), "-d")
            columns = {
                "query": pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(item), np.int32)), [f"q{query}"]),
                "expert": pa.DictionaryArray.from_arrays(pa.array(expert.astype(np.int32)), names),
                "item": ids.take(pa.array(item)),
                "rank": pa.array(rank.astype(np.float64)),
                "score": pa.array(score.astype(np.float64)),
            }
            part = f"S{query // PART + 1}"
            yield SourceTable("entries", pa.table(columns), part)
            labels = [pa.repeat(f"q{query}", len(judged)), ids.take(pa.array(judged)), pa.array(label)]
            yield SourceTable("judgements", pa.table(labels, schema=ITEMS), part)

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """Empty: there are no files."""
        return []

    def _plant(self, query: int) -> tuple[np.random.Generator, Floats]:
        """The query's random numbers, and the true scores of its documents."""
        rng = random_numbers(self.seed, query + 1)
        return rng, rng.standard_normal(max(1, round(self.items * rng.uniform(*SPREAD))))

    def _lists(self, rng: np.random.Generator, truth: Floats) -> tuple[np.ndarray, ...]:
        """Expert, item, rank and score of every entry of a query, by expert and rank."""
        n_items = len(truth)
        shared = rng.standard_normal((self._groups.max() + 1, n_items), dtype=np.float32)
        columns = []
        for expert, (quality, group) in enumerate(zip(self.qualities, self._groups, strict=True)):
            noise = np.sqrt(GROUP_NOISE) * shared[group]
            noise += np.sqrt(1 - GROUP_NOISE) * rng.standard_normal(n_items, dtype=np.float32)
            seen = quality * truth + np.sqrt(1 - quality**2) * noise
            known = np.flatnonzero(rng.random(n_items) >= self.missing) if self.missing else np.arange(n_items)
            order = known[np.argsort(-seen[known], kind="stable")[: self.depth]]
            columns.append((np.full(len(order), expert), order, np.arange(1, len(order) + 1), seen[order]))
        return tuple(np.concatenate(column) for column in zip(*columns, strict=True))


def _grades(truth: Floats) -> np.ndarray:
    """Labels of all documents: the best few of the truth are relevant, fewer where the query is small."""
    label = np.zeros(len(truth), dtype=np.int32)
    order, first = np.argsort(-truth, kind="stable"), 0
    for grade, count in RELEVANT:
        last = first + max(1, min(count, len(truth) * count // 1000))
        label[order[first:last]] = grade
        first = last
    return label
