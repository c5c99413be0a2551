"""Chunks for tests: built from plain Python, or drawn by hypothesis."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from distagg.dataset import Dataset
from distagg.dataset.chunk import Chunk, chunk_from_tables
from distagg.types import LISTS_TABLE, PAIRS_TABLE, QUERIES_TABLE


@dataclass(frozen=True)
class Query:
    """``lists`` maps an expert to {item position: rank}; pairs are (winner, loser, weight, tie)."""

    size: int
    lists: dict[int, dict[int, float]] = field(default_factory=dict)
    labels: Sequence[int | None] = ()
    pairs: Sequence[tuple[int, int, float, bool]] = ()
    name: str = "q"


def build_chunk(queries: Sequence[Query], n_experts: int | None = None) -> Chunk:
    """The chunk that holds these queries."""
    rows, lists, pairs = [], [], []
    for q, query in enumerate(queries):
        labels = list(query.labels) or [None] * query.size
        items = [f"i{i}" for i in range(query.size)]
        rows.append({"query": f"{query.name}{q}", "part": "", "item": items, "label": labels, "missed": []})
        for expert, ranks in sorted(query.lists.items()):
            entries = sorted(ranks.items(), key=lambda entry: (entry[1], entry[0]))
            lists.append(
                {
                    "query": q,
                    "expert": expert,
                    "item": [i for i, _ in entries],
                    "rank": [float(r) for _, r in entries],
                    "score": None,
                }
            )
        pairs += [
            {"query": q, "expert": 0, "winner": w, "loser": x, "weight": weight, "tie": tie}
            for w, x, weight, tie in query.pairs
        ]
    if n_experts is None:
        n_experts = 1 + max((expert for query in queries for expert in query.lists), default=0)
    return chunk_from_tables(
        pa.Table.from_pylist(rows, QUERIES_TABLE),
        pa.Table.from_pylist(lists, LISTS_TABLE).drop(["score"]),
        pa.Table.from_pylist(pairs, PAIRS_TABLE),
        n_experts=n_experts,
    )


def labelled(labels: Sequence[int | None], expert: str = "a") -> Dataset:
    """A dataset of one query, which one expert ranks in the order of the labels given."""
    n = len(labels)
    columns = {
        "query": ["q"] * n,
        "expert": [expert] * n,
        "item": [f"i{i}" for i in range(n)],
        "rank": range(1, n + 1),
        "label": pa.array(labels, pa.int32()),
    }
    return Dataset.from_arrow(pa.table(columns))


@st.composite
def queries(draw: st.DrawFn, *, most_items: int = 8, most_experts: int = 5, integers: bool = True) -> Query:
    """A query with partial lists, ties, empty lists, unlisted items."""
    size = draw(st.integers(1, most_items))
    lists, labels = draw(_of_size(size, most_experts, integers))
    return Query(size, {e: r for e, r in lists.items() if r}, labels)


@cache  # hypothesis takes longer to make and check a strategy than to draw from it
def _of_size(size: int, most_experts: int, integers: bool) -> st.SearchStrategy[tuple[dict, list[int]]]:
    """Lists and labels of a query of so many items."""
    rank = st.integers(1, 12).map(float) if integers else st.floats(0.5, 500.0)
    one_list = st.dictionaries(st.integers(0, size - 1), rank, max_size=size)
    lists = st.dictionaries(st.integers(0, most_experts - 1), one_list, max_size=most_experts)
    return st.tuples(lists, st.lists(st.integers(0, 2), min_size=size, max_size=size))


def chunks(*, most_queries: int = 4, **kwargs: int) -> st.SearchStrategy[tuple[list[Query], Chunk]]:
    """Queries as plain data, and the chunk that holds them."""
    many = st.lists(queries(**kwargs), min_size=1, max_size=most_queries)
    return many.map(lambda made: (made, build_chunk(made, n_experts=5)))


def on_chunks(count: int = 100, most_queries: int = 4) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs a test on each of ``drawn_chunks`` as its argument ``drawn``: ``given(drawn=chunks())`` that draws once."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def on_each(**others: object) -> None:
            for drawn in drawn_chunks(count, most_queries):
                test(**others, drawn=drawn)

        told = inspect.signature(test)
        kept = [about for name, about in told.parameters.items() if name != "drawn"]
        on_each.__signature__ = told.replace(parameters=kept)  # type: ignore[attr-defined]
        return on_each

    return decorate


def drawn_chunks(count: int, most_queries: int = 4) -> list[tuple[list[Query], Chunk]]:
    """As many of ``chunks``, the smallest first, so that the first one to fail is easy to read."""
    return sorted(_hundred(most_queries)[:count], key=lambda drawn: drawn[1].n_entries)


@dataclass(frozen=True)
class Judged:
    """A ranking and its judgements: (label or None, score or None where not retrieved) of items, and missed labels."""

    items: tuple[tuple[int | None, float | None], ...]
    missed: tuple[int, ...]


@cache
def drawn_judgements(count: int = 300) -> list[Judged]:
    """Rankings with tied scores, unjudged items, negative labels, items that are not retrieved, missed labels."""
    label, score = (
        st.sampled_from([None, -2, -1, 0, 0, 1, 2, 3]),
        st.sampled_from([None, 0.0, 0.5, 1.0, 1.5, 2.0, -3.0]),
    )
    drawn: list[Judged] = []

    @settings(max_examples=count, database=None)
    @given(st.lists(st.tuples(label, score), min_size=1, max_size=9), st.lists(st.integers(-1, 3), max_size=3))
    def keep(items: list[tuple[int | None, float | None]], missed: list[int]) -> None:
        drawn.append(Judged(tuple(items), tuple(missed)))

    keep()
    return drawn


@cache  # drawing takes longer than most of what is tried on what was drawn
def _hundred(most_queries: int) -> list[tuple[list[Query], Chunk]]:
    kept: list[tuple[list[Query], Chunk]] = []

    @settings(max_examples=100, database=None)
    @given(drawn=chunks(most_queries=most_queries))
    def keep(drawn: tuple[list[Query], Chunk]) -> None:
        kept.append(drawn)

    keep()
    return kept
