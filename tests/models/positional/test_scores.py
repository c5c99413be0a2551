"""Norms and rules on scores against twins written from their definitions, list by list and item by item."""

import logging
import statistics

import numpy as np
import pyarrow as pa
import pytest

from distagg import Dataset, fit, rank
from distagg.errors import UsageError
from distagg.models import model_named
from distagg.models.positional.scores import NORMS

ITEMS = [f"i{n}" for n in range(6)]


def drawn(seed):
    """Lists of scores by expert: lengths from 1, ties, all tied, zeros, values below 0."""
    draw = np.random.default_rng(seed)
    lists = {"a": {"i0": 3.0, "i1": 3.0}, "b": {"i2": 7.5}, "c": {"i0": 0.0, "i3": 0.0}, "d": {"i0": -1.0, "i4": -3.0}}
    for name in "efg":
        chosen = draw.permutation(len(ITEMS))[: draw.integers(2, 6)]
        lists[name] = {ITEMS[i]: float(np.round(draw.normal() * 3, 1)) for i in chosen}
    return lists


def dataset(lists):
    rows = [{"query": "q", "expert": e, "item": i, "score": s} for e, of in lists.items() for i, s in of.items()]
    table = pa.Table.from_pylist(rows)
    every = {"query": ["q"] * len(ITEMS), "item": ITEMS, "label": pa.nulls(len(ITEMS), pa.int32())}
    return Dataset.from_arrow(table, labels=pa.table(every))


def place(scores, item):
    """From 1, ties sharing the mean."""
    return sum(s > scores[item] for s in scores.values()) + (list(scores.values()).count(scores[item]) + 1) / 2


def naive(norm, scores):
    """A list's values on the norm's scale."""
    values = list(scores.values())
    low, high, mean = min(values), max(values), statistics.fmean(values)
    flat = low == high
    size = len(values)
    rule = {
        "rank": lambda i: 1 - (place(scores, i) - 1) / size,
        "borda": lambda i: 1 - (place(scores, i) - 1) / len(ITEMS),
        "minmax": lambda i: 1.0 if flat else (scores[i] - low) / (high - low),
        "sum": lambda i: 1.0 if flat else (scores[i] - low) / (sum(values) - size * low),
        "max": lambda i: scores[i] / max(map(abs, values)) if any(values) else 1.0,
        "l2": lambda i: scores[i] / np.sqrt(sum(v * v for v in values)) if any(values) else 1.0,
        "zmuv": lambda i: 0.0 if flat else (scores[i] - mean) / statistics.pstdev(values),
        "dbsf": lambda i: (
            0.5 if flat else (scores[i] - mean + 3 * statistics.stdev(values)) / 6 / statistics.stdev(values)
        ),
    }[norm]
    return {i: rule(i) for i in scores}


RULES = {
    "combsum": sum,
    "combanz": statistics.fmean,
    "combmax": max,
    "combmin": min,
    "combmed": statistics.median,
}


@pytest.mark.parametrize("norm", ["rank", "borda", *NORMS])
@pytest.mark.parametrize("name", RULES)
def test_rules_and_norms(name, norm):
    for seed in range(3):
        lists = drawn(seed)
        settings = {"norm": norm} | ({"unlisted": "zero"} if name == "combsum" else {})
        ranking = {row["item"]: row["score"] for row in rank(name, dataset(lists), **settings).to_pylist()}
        values = [naive(norm, scores) for scores in lists.values()]
        listed = {i: [of[i] for of in values if i in of] for i in ITEMS}
        expected = {i: RULES[name](v) for i, v in listed.items() if v}
        for item in ITEMS:
            if listed[item]:
                assert ranking[item] == pytest.approx(expected[item], abs=1e-9)
            elif name == "combsum":
                assert ranking[item] == 0
            else:
                assert ranking[item] < min(expected.values())


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_combgmnz_lies_between_combsum_and_combmnz(gamma):
    lists = drawn(1)
    held = {i: sum(i in of for of in lists.values()) for i in ITEMS}
    plain = {row["item"]: row["score"] for row in rank("combsum", dataset(lists)).to_pylist()}
    for row in rank("combgmnz", dataset(lists), gamma=gamma).to_pylist():
        assert row["score"] == pytest.approx(plain[row["item"]] * (held[row["item"]] ** gamma))


def test_bounds_stand_for_the_ends_of_a_list(caplog):
    lists = {"bm25": {"i0": 30.0, "i1": 50.0, "i2": -5.0}, "dense": {"i0": 0.4, "i1": 0.2}}
    with caplog.at_level(logging.WARNING, "distagg"):
        ranking = rank("combsum", dataset(lists), bounds={"bm25": (0, 40)})
    scores = {row["item"]: row["score"] for row in ranking.to_pylist()}
    assert scores == pytest.approx({"i0": 0.75 + 1, "i1": 1 + 0, "i2": 0, "i3": 0, "i4": 0, "i5": 0})
    assert "bounds: 2 of 3 scores of bm25 lie outside 0 to 40 and count as the nearer bound" in caplog.text
    fitted = fit("combsum", dataset(lists), bounds="bm25:0:40,dense:-1:1")
    assert fitted.model.bounds == "bm25:0:40,dense:-1:1"
    assert fitted.params_for(("dense", "new"))["expert_bounds"].tolist() == [[-1, 1], [1, 1]]
    assert rank(fitted, dataset(lists)).num_rows == 6


def test_wrong_bounds_are_refused():
    for settings, said in (
        ({"bounds": "bm25:40:0"}, "40:0 for expert 'bm25', expected low:high"),
        ({"bounds": "bm25:40"}, "expected name:low:high"),
        ({"bounds": "bm25:0:1", "norm": "zmuv"}, "bounds need norm=minmax, found norm=zmuv"),
    ):
        with pytest.raises(UsageError, match=said):
            model_named("combsum", settings)
    with pytest.raises(UsageError, match="unknown expert in bounds 'bm26'; did you mean 'bm25'"):
        rank("combmax", dataset({"bm25": {"i0": 1.0}}), bounds="bm26:0:1")
    ranks = Dataset.from_arrow(pa.table({"expert": ["a", "a"], "item": ["x", "y"], "rank": [1, 2]}))
    with pytest.raises(UsageError, match="bounds of combsum needs scores"):
        rank("combsum", ranks, bounds="a:0:1")
