"""Changes between rankings, against a naive twin that looks at every query by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from distagg.errors import InputError, UsageError
from distagg.metrics.changes import TOP, RankChanges, add_changes, add_same, rbo, weights_moved

Orders = dict[str, list[str]]
orders = st.dictionaries(
    st.sampled_from("abcdef"),
    st.permutations([f"i{n}" for n in range(14)]).flatmap(
        lambda items: st.integers(1, 14).map(lambda size: items[:size])
    ),
    max_size=5,
)


def table(found: Orders) -> pa.Table:
    rows = [(query, item, rank) for query, items in found.items() for rank, item in enumerate(items, start=1)]
    kinds = (pa.string(), pa.string(), pa.int32())
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(kinds)]
    return pa.table(columns, names=["query", "item", "rank"])


def naive(before: Orders, now: Orders) -> dict[str, Any]:
    both = [query for query in now if query in before]
    pairs = [(q, i, before[q].index(i) + 1, now[q].index(i) + 1) for q in both for i in before[q] if i in now[q]]
    taus = []
    for query in both:
        ranks = [(a, b) for q, _, a, b in pairs if q == query]
        if len(ranks) > 1:
            taus.append(kendalltau(*zip(*ranks, strict=True)).statistic)
    overlaps = [
        len(set(before[q][:TOP]) & set(now[q][:TOP])) / min(TOP, max(len(before[q]), len(now[q]))) for q in both
    ]
    moved = [one for one in pairs if one[2] != one[3]]
    return {
        "queries": {
            "same": sum(before[q] == now[q] for q in both),
            "changed": sum(before[q] != now[q] for q in both),
            "new": len(set(now) - set(before)),
            "vanished": len(set(before) - set(now)),
        },
        "items": {
            "same": len(pairs) - len(moved),
            "moved": len(moved),
            "new": sum(map(len, now.values())) - len(pairs),
            "vanished": sum(map(len, before.values())) - len(pairs),
        },
        "another on top": sum(before[q][0] != now[q][0] for q in both),
        "tau": np.mean(taus) if taus else None,
        f"overlap@{TOP}": np.mean(overlaps) if both else None,
        "furthest": max((abs(a - b) for _, _, a, b in moved), default=0),
    }


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    furthest = wanted.pop("furthest")
    for name, value in wanted.items():
        assert found[name] == (pytest.approx(value) if isinstance(value, float) else value), name
    assert max((abs(m["before"] - m["now"]) for m in found["movers"]), default=0) == furthest


@given(before=orders, now=orders)
def test_counts_are_those_of_the_twin(before: Orders, now: Orders) -> None:
    total = RankChanges()
    add_changes(total, table(before), table(now))
    same(total.to_dict(), naive(before, now))


@given(before=orders, now=orders, other=orders)
def test_pieces_add_up(before: Orders, now: Orders, other: Orders) -> None:
    total = RankChanges()
    add_changes(total, table(before), table(now))
    add_same(total, table({f"z{query}": items for query, items in other.items()})["query"])
    more = {f"z{query}": items for query, items in other.items()}
    same(total.to_dict(), naive(before | more, now | more))


def test_scores_order_where_there_is_no_rank() -> None:
    total = RankChanges()
    run = pa.table({"query": ["q"] * 3, "item": ["x", "y", "z"], "score": [1.0, 3.0, 2.0]})
    add_changes(total, run, table({"q": ["y", "x", "z"]}))
    assert total.movers == [
        {"query": "q", "item": "x", "before": 3, "now": 2},
        {"query": "q", "item": "z", "before": 2, "now": 3},
    ]


def test_weights() -> None:
    before = np.array([[3.0, 0.0], [0.0, 4.0]])
    assert weights_moved(before, before) == {"moved": 0.0, "cosine": 1.0}
    assert weights_moved(before, 2 * before) == {"moved": 1.0, "cosine": 1.0}
    assert weights_moved(before, before[::-1])["cosine"] == 0.0
    assert weights_moved(0 * before, before)["moved"] == 1.0


def endless_overlap(a: list[int], b: list[int], p: float) -> float:
    """The definition, summed to a depth that no longer matters: agreement beyond a ranking is carried on."""
    short, long = sorted((a, b), key=len)
    if not short:
        return 0.0
    agreed, total = 0.0, 0.0
    at_end = len({*short} & {*long[: len(short)]}) / len(short)
    for depth in range(1, 3000):
        if depth <= len(long):
            common = len({*short[:depth]} & {*long[:depth]})
            agreed = (common + at_end * max(depth - len(short), 0)) / depth
        total += p ** (depth - 1) * agreed
    return (1 - p) * total


def test_rbo_is_the_endless_sum() -> None:
    rng = np.random.default_rng(0)
    sides: tuple[list[Any], list[Any]] = ([], [])
    wanted = {}
    for q in range(40):
        pair = [rng.permutation(12)[: rng.integers(0, 9)].tolist() for _ in sides]
        for rows, ranking in zip(sides, pair, strict=True):
            rows += [(f"q{q}", f"i{item}", rank) for rank, item in enumerate(ranking, start=1)]
        if pair[0] or pair[1]:
            wanted[f"q{q}"] = pair
    a, b = (pa.table(dict(zip(("query", "item", "rank"), zip(*rows, strict=True), strict=True))) for rows in sides)
    for p in (0.5, 0.9, 0.98):
        values = dict(zip(*rbo(a, b, p).to_pydict().values(), strict=True))
        assert values == pytest.approx({q: endless_overlap(*pair, p) for q, pair in wanted.items()}, abs=1e-9)
        assert rbo(b, a, p)["rbo"].to_pylist() == pytest.approx([values[q] for q in rbo(b, a, p)["query"].to_pylist()])
    np.testing.assert_allclose(rbo(a, a)["rbo"].to_pylist(), 1.0)


def test_rbo_refuses_what_is_no_ranking() -> None:
    good = pa.table({"query": ["q"], "item": ["x"], "rank": [1]})
    with pytest.raises(InputError, match="b: found more than one row for item 'x' in query 'q'"):
        rbo(good, pa.concat_tables([good, good]))
    with pytest.raises(UsageError, match="found 1 as the persistence of rbo"):
        rbo(good, good, 1)
