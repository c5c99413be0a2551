"""Planted retrieval runs: their shape, their truth, and that they can be drawn again."""

from __future__ import annotations

import numpy as np
import pytest

from distagg.errors import UsageError
from distagg.sources.deep import POOLED, DeepSource, _grades


def test_lists_have_their_depth_and_are_ordered_by_score() -> None:
    source = DeepSource(2, items=400, experts=6, depth=50)
    entries, judgements = list(source.tables())[:2]
    table = entries.table
    assert len(table) == 6 * 50
    for name in source.expert_names:
        rows = table.filter(np.array(table["expert"].to_pylist()) == name)
        assert rows["rank"].to_pylist() == list(range(1, 51))
        assert (np.diff(rows["score"].to_numpy()) <= 0).all()
    near_the_top = {row["item"] for row in table.to_pylist() if row["rank"] <= POOLED}
    assert set(judgements.table["item"].to_pylist()) == near_the_top


def test_labels_follow_the_truth() -> None:
    truth = DeepSource(1, items=5000).truth()
    labels = _grades(truth)
    for grade in (1, 2, 3):
        assert truth[labels == grade].min() >= truth[labels == grade - 1].max()


def test_better_runs_are_closer_to_the_truth() -> None:
    source = DeepSource(1, items=3000, experts=20, depth=200, random=0.2, adversarial=0.1)
    truth, table = source.truth(), next(source.tables()).table
    item = np.array([int(name.split("-d")[1]) for name in table["item"].to_pylist()])
    held = np.array([truth[item[n * 200 : (n + 1) * 200]].mean() for n in range(20)])
    assert np.corrcoef(held, source.qualities)[0, 1] > 0.97


def test_more_queries_begin_with_the_same_ones() -> None:
    few, many = (list(DeepSource(n, items=300, experts=4, depth=20, seed=3).tables()) for n in (1, 3))
    assert all(a.table.equals(b.table) for a, b in zip(few, many, strict=False))
    assert not few[0].table.equals(next(DeepSource(1, items=300, experts=4, depth=20, seed=4).tables()).table)


def test_unknown_documents_lower_the_overlap() -> None:
    def shared(missing: float) -> float:
        table = next(DeepSource(1, items=2000, experts=10, depth=100, missing=missing).tables()).table
        return len(table) / len(set(table["item"].to_pylist()))

    assert shared(0.8) < 0.7 * shared(0.0)


@pytest.mark.parametrize("wrong", [{"queries": 0}, {"depth": 0}, {"missing": 1.0}, {"random": 0.7, "adversarial": 0.7}])
def test_wrong_sizes_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        DeepSource(**wrong)  # type: ignore[arg-type]
