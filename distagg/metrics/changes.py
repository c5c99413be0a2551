"""How rankings of the same queries differ: who moved, who came, who went. O(rows log rows)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.metrics.agreement import kendall_tau
from distagg.metrics.evaluate import index_rankings
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
    old, new = _numbered(before, "the run before"), _numbered(now, "this run")
    names = list(dict.fromkeys([*old.queries, *new.queries]))
    gone, come = ([n for n in names if n not in ranking.queries] for ranking in (new, old))
    total.queries["vanished"] += len(gone)
    total.queries["new"] += len(come)
    total.vanished = (total.vanished + gone)[:SHOWN]
    total.new = (total.new + come)[:SHOWN]
    place = {name: n for n, name in enumerate(names)}
    items = pa.concat_arrays([old.items, new.items]).dictionary_encode()
    codes, width = items.indices.to_numpy().astype(OFFSET), max(1, len(items.dictionary))
    keys = [
        np.array([place[name] for name in ranking.queries], dtype=OFFSET)[ranking.query] * width + mine
        for ranking, mine in ((old, codes[: len(old.rank)]), (new, codes[len(old.rank) :]))
    ]
    common, a, b = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    total.items["vanished"] += len(keys[0]) - len(common)
    total.items["new"] += len(keys[1]) - len(common)
    query, was, is_now = common // width, old.rank[a], new.rank[b]
    moved = was != is_now
    total.items["moved"] += int(moved.sum())
    total.items["same"] += int((~moved).sum())
    both = np.array(sorted(place[name] for name in names if name in old.queries and name in new.queries), dtype=OFFSET)
    _add_queries(
        total, names, both, query, (was, is_now), [np.bincount(k // width, minlength=len(names)) for k in keys]
    )
    far = np.flatnonzero(moved)[np.argsort(-np.abs(is_now - was)[moved], kind="stable")]
    total.movers += [
        {
            "query": names[query[n]],
            "item": items.dictionary[int(common[n] % width)].as_py(),
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
    sizes: list[np.ndarray],
) -> None:
    """Figures of the queries in both rankings; rows of ``query`` and ``ranks`` are the common items, by query."""
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


@dataclass(frozen=True, slots=True)
class _Numbered:
    queries: dict[str, int]
    query: Offsets  # (rows,) positions in ``queries``
    items: pa.Array
    rank: Offsets  # (rows,) from 1, by the table's rank or score; equal scores as they stand


def _numbered(table: pa.Table, source: str) -> _Numbered:
    index = index_rankings(table, source=source)
    query = np.repeat(np.arange(len(index.queries)), np.diff(index.offsets)).astype(OFFSET)
    order = np.lexsort((-index.scores, query))  # stable
    rank = np.empty(len(order), dtype=OFFSET)
    rank[order] = np.arange(len(order)) - index.offsets[query] + 1
    return _Numbered(index.queries, query, index.items, rank)


def weights_moved(before: Floats, now: Floats) -> dict[str, float]:
    """How far rows of weights moved: the length of the difference by that of what was, and the angle's cosine."""
    lengths = [float(np.sqrt((array * array).sum())) for array in (before, now, now - before)]
    flat = float((before * now).sum())
    return {
        "moved": lengths[2] / lengths[0] if lengths[0] else float(lengths[2] > 0),
        "cosine": flat / (lengths[0] * lengths[1]) if lengths[0] and lengths[1] else float(lengths[0] == lengths[1]),
    }
