"""How two rankings of the same queries differ: who moved, who came, who went, and their overlap. O(rows log rows)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.arrow import as_arrow, as_numpy, as_words
from distagg.errors import UsageError
from distagg.metrics.evaluate import RankingIndex, index_rankings, refuse_twice
from distagg.metrics.ranked import kendall_tau, rank_biased_overlap
from distagg.types import OFFSET, Floats, Offsets

TOP = 10
SHOWN = 20
DOTS = 2_000


@dataclass(slots=True)
class RankChanges:
    """Counts that add up over pieces of rankings, and the most striking of each kind."""

    queries: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("same", "changed", "new", "vanished"), 0))
    items: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("same", "moved", "new", "vanished"), 0))
    first: int = 0  # queries with another item on top
    taus: float = 0.0  # sum, over queries with at least two items in both
    with_tau: int = 0
    overlaps: float = 0.0  # sum over queries in both
    movers: list[dict[str, Any]] = field(default_factory=list)  # query, item, before, now
    least_alike: list[dict[str, Any]] = field(default_factory=list)  # query, tau
    new: list[str] = field(default_factory=list)
    vanished: list[str] = field(default_factory=list)
    dots: list[tuple[int, int]] = field(default_factory=list)  # ranks before and now of items that moved

    def to_dict(self) -> dict[str, Any]:
        common = self.queries["same"] + self.queries["changed"]
        return {
            "queries": self.queries,
            "items": self.items,
            "another on top": self.first,
            "tau": self.taus / self.with_tau if self.with_tau else None,
            f"overlap@{TOP}": self.overlaps / common if common else None,
            "movers": self.movers,
            "least alike": self.least_alike,
            "new": self.new,
            "vanished": self.vanished,
            "dots": self.dots,
        }


def add_same(total: RankChanges, queries: pa.ChunkedArray) -> None:
    """Count rows (their query ids) that are known to be the same in both rankings."""
    sizes = np.array([counted["counts"] for counted in queries.value_counts().to_pylist()], dtype=OFFSET)
    total.queries["same"] += len(sizes)
    total.items["same"] += int(sizes.sum())
    total.taus += float((sizes > 1).sum())
    total.with_tau += int((sizes > 1).sum())
    total.overlaps += len(sizes)


def add_changes(total: RankChanges, before: pa.Table, now: pa.Table) -> None:
    """Count how whole queries of two rankings tables (query, item, rank or score) differ."""
    matched = match_rankings(before, now, ("the run before", "this run"))
    names, sizes = matched.queries, matched.sizes
    gone, come = (
        [name for name, size in zip(names, of_query.tolist(), strict=True) if not size] for of_query in sizes[::-1]
    )
    total.queries["vanished"] += len(gone)
    total.queries["new"] += len(come)
    total.vanished = (total.vanished + gone)[:SHOWN]
    total.new = (total.new + come)[:SHOWN]
    query, was, is_now = matched.query, matched.rank_a, matched.rank_b
    total.items["vanished"] += int(sizes[0].sum()) - len(query)
    total.items["new"] += int(sizes[1].sum()) - len(query)
    moved = was != is_now
    total.items["moved"] += int(moved.sum())
    total.items["same"] += int((~moved).sum())
    both = np.flatnonzero((sizes[0] > 0) & (sizes[1] > 0))
    _add_queries(total, names, both, query, (was, is_now), sizes)
    far = np.flatnonzero(moved)[np.argsort(-np.abs(is_now - was)[moved], kind="stable")]
    total.movers += [
        {
            "query": names[query[n]],
            "item": matched.item(n),
            "before": int(was[n]),
            "now": int(is_now[n]),
        }
        for n in far[:SHOWN]
    ]
    total.movers = sorted(total.movers, key=lambda ranking: -abs(ranking["now"] - ranking["before"]))[:SHOWN]
    thin = far[:: max(1, -(-len(far) // DOTS))]
    total.dots = (total.dots + [(int(was[n]), int(is_now[n])) for n in thin])[:DOTS]


def _add_queries(
    total: RankChanges,
    names: list[str],
    both: Offsets,
    query: Offsets,
    ranks: tuple[Offsets, Offsets],
    sizes: tuple[Offsets, Offsets],
) -> None:
    """Add the figures of the queries in both rankings; ``query`` and ``ranks`` have a row per common item, by query."""
    was, is_now = ranks
    offsets = np.append(np.searchsorted(query, both), len(query)).astype(OFFSET)
    held = np.diff(offsets)
    sums = np.concatenate([[0], np.cumsum(was != is_now)])
    same = (sums[offsets[1:]] == sums[offsets[:-1]]) & (sizes[0][both] == held) & (sizes[1][both] == held)
    total.queries["same"] += int(same.sum())
    total.queries["changed"] += int((~same).sum())
    top = np.concatenate([[0], np.cumsum((was <= TOP) & (is_now <= TOP))])
    reach = np.clip(np.maximum(sizes[0][both], sizes[1][both]), 1, TOP)
    total.overlaps += float(((top[offsets[1:]] - top[offsets[:-1]]) / reach).sum())
    leads = np.concatenate([[0], np.cumsum((was == 1) & (is_now == 1))])
    total.first += int((leads[offsets[1:]] == leads[offsets[:-1]]).sum())
    taus = kendall_tau(offsets, -was.astype(float), -is_now.astype(float), np.ones(len(was), dtype=bool))
    known = np.isfinite(taus)
    total.taus += float(taus[known].sum())
    total.with_tau += int(known.sum())
    low = np.flatnonzero(known & (taus < 1.0))
    low = low[np.argsort(taus[low], kind="stable")][:SHOWN]
    total.least_alike += [{"query": names[both[n]], "tau": float(taus[n])} for n in low]
    total.least_alike = sorted(total.least_alike, key=lambda one: one["tau"])[:SHOWN]


def rbo(a: pa.Table, b: pa.Table, p: float = 0.9, *, sources: tuple[str, str] = ("a", "b")) -> pa.Table:
    """Rank-biased overlap of two rankings of every query, extrapolated (Webber, Moffat and Zobel 2010).

    1 where both rankings are the same, 0 where they have nothing in common or only one of them has the query. A reader
    goes on from each rank to the next with probability ``p``: 0.9 gives the first ten ranks 86% of the weight.

    Parameters
    ----------
    a, b
        Columns ``query``, ``item`` and ``rank`` or ``score``; equal scores keep the order of the rows.
    p
        Between 0 and 1.
    sources
        What errors call the two.

    Returns
    -------
    Columns ``query`` and ``rbo``: a row for each query of either ranking.

    Examples
    --------
    >>> a = pa.table({"query": ["q"] * 3, "item": ["x", "y", "z"], "rank": [1, 2, 3]})
    >>> b = pa.table({"query": ["q"] * 2, "item": ["y", "x"], "rank": [1, 2]})
    >>> rbo(a, a)["rbo"].to_pylist(), round(rbo(a, b)["rbo"][0].as_py(), 4)
    ([1.0], 0.9)
    """
    if not 0.0 < p < 1.0:
        raise UsageError(f"found {p} as the persistence of rbo, expected a number between 0 and 1, like 0.9")
    matched = match_rankings(a, b, sources)
    depth = np.maximum(matched.rank_a, matched.rank_b)
    values = rank_biased_overlap(*matched.sizes, matched.query, depth, p)
    return pa.table({"query": as_words(matched.queries), "rbo": as_arrow(values)})


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """The items that two rankings have in common, by query: C items, Q queries of either ranking."""

    queries: list[str]
    sizes: tuple[Offsets, Offsets]  # (Q,) items of the query in each ranking, 0 where it does not have the query
    query: Offsets  # (C,) ascending
    rank_a: Offsets  # (C,) from 1
    rank_b: Offsets  # (C,)
    items: pa.Array  # distinct item ids
    code: Offsets  # (C,) positions in ``items``

    def item(self, row: int) -> str:
        return str(self.items[int(self.code[row])].as_py())


def match_rankings(a: pa.Table, b: pa.Table, sources: tuple[str, str]) -> Matched:
    """Join two rankings tables by query and item; an item that stands twice in a query is an InputError."""
    both = [index_rankings(table, source=source) for table, source in zip((a, b), sources, strict=True)]
    names = list(dict.fromkeys([*both[0].queries, *both[1].queries]))
    place = {name: n for n, name in enumerate(names)}
    items = pa.concat_arrays([ranking.items for ranking in both]).dictionary_encode()
    codes, width = as_numpy(items.indices).astype(OFFSET), max(1, len(items.dictionary))
    keys, ranks, sizes = [], [], []
    for ranking, mine in zip(both, np.split(codes, [len(both[0].scores)]), strict=True):
        query = np.array([place[name] for name in ranking.queries], dtype=OFFSET).repeat(np.diff(ranking.offsets))
        keys.append(query * width + mine)
        refuse_twice(ranking.source, keys[-1], ranking.items, query, as_words(names))
        ranks.append(_ranks(ranking))
        sizes.append(np.bincount(query, minlength=len(names)))
    common, rows_a, rows_b = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    return Matched(
        names,
        (sizes[0], sizes[1]),
        common // width,
        ranks[0][rows_a],
        ranks[1][rows_b],
        items.dictionary,
        common % width,
    )


def _ranks(index: RankingIndex) -> Offsets:
    """The rank of every row in its query, from 1; equal scores keep the order of the rows."""
    query = np.repeat(np.arange(len(index.queries)), np.diff(index.offsets))
    order = np.lexsort((-index.scores, query))  # stable
    rank = np.empty(len(order), dtype=OFFSET)
    rank[order] = np.arange(len(order)) - index.offsets[query] + 1
    return rank


def weights_moved(before: Floats, now: Floats) -> dict[str, float]:
    """How far rows of weights moved: the length of the difference by that of what was, and the angle's cosine."""
    lengths = [float(np.sqrt((array * array).sum())) for array in (before, now, now - before)]
    flat = float((before * now).sum())
    return {
        "moved": lengths[2] / lengths[0] if lengths[0] else float(lengths[2] > 0),
        "cosine": flat / (lengths[0] * lengths[1]) if lengths[0] and lengths[1] else float(lengths[0] == lengths[1]),
    }
