"""Rules that learn what a place is worth, against twins written from their formulas."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

from distagg import Dataset, fit, rank
from distagg.engine import load_model, save_model
from distagg.errors import UsageError

QUERIES, EXPERTS = 7, ("a", "b", "c")
ODDS = math.log(0.001 / 0.999)


def drawn(seed=3):
    """Lists {(query, expert): items in order} and relevant items {query: set}; some experts have no list."""
    draw = np.random.default_rng(seed)
    lists, relevant = {}, {}
    for q in range(QUERIES):
        items = [f"i{n}" for n in range(20)]
        relevant[q] = {items[n] for n in draw.permutation(20)[:5]}
        for e in EXPERTS:
            if (q, e) != (0, "c"):
                lists[q, e] = [items[n] for n in draw.permutation(20)[: draw.integers(3, 19)]]
    return lists, relevant


LISTS, RELEVANT = drawn()
TRAIN = [q for q in range(QUERIES) if q != QUERIES - 1]  # the last query has no labels


def dataset():
    rows = [
        {"query": f"q{q}", "expert": e, "item": i, "rank": float(n + 1)}
        for (q, e), items in LISTS.items()
        for n, i in enumerate(items)
    ]
    items = [f"i{n}" for n in range(20)]
    labels = [{"query": f"q{q}", "item": i, "label": int(i in RELEVANT[q])} for q in TRAIN for i in items]
    return Dataset.from_arrow(pa.Table.from_pylist(rows), judgements=pa.Table.from_pylist(labels))


DATA = dataset()


def hits(expert):
    return [[i in RELEVANT[q] for i in LISTS[q, expert]] for q in TRAIN if (q, expert) in LISTS]


def share(expert, start, end):
    return sum(sum(row[start:end]) / (end - start) for row in hits(expert)) / len(hits(expert))


def at_cuts(cuts, expert, place):
    start, end = next((a, b) for a, b in itertools.pairwise(cuts) if a <= place < b)
    return share(expert, start, end)


def probfuse(expert, place, items, x=4):
    def segments(row):
        size = math.ceil(len(row) / x)
        return [row[k * size : (k + 1) * size] for k in range(x)]

    k = place // math.ceil(len(items) / x)
    rows = [segments(row)[k] for row in hits(expert)]
    return sum(sum(row) / len(row) for row in rows if row) / len(rows) / (k + 1)


def posfuse(expert, place, items):
    rows = [row for row in hits(expert) if place < len(row)]
    return sum(row[place] for row in rows) / len(rows) if rows else 0.0


def slidefuse(expert, place, items, w=2):
    around = range(max(place - w, 0), min(place + w, len(items) - 1) + 1)
    return sum(posfuse(expert, p, items) for p in around) / len(around)


def mapfuse(expert, place, items):
    total = 0.0
    for q in TRAIN:
        row = [i in RELEVANT[q] for i in LISTS.get((q, expert), ())]
        total += sum(sum(row[: n + 1]) / (n + 1) for n in range(len(row)) if row[n]) / len(RELEVANT[q])
    return total / len(hits(expert)) / (place + 1)


def segfuse(expert, place, items):
    return at_cuts((0, 5, 15, 35), expert, place) * (2 - place / len(items))


def bayesfuse(expert, place, items):
    chance = at_cuts((0, 5, 10, 15, 20), expert, place) or 0.001
    return math.log(chance / (1 - chance)) - ODDS


TWINS = [
    (probfuse, {"segments_per_list": 4}),
    (posfuse, {}),
    (slidefuse, {"window": 2}),
    (mapfuse, {}),
    (segfuse, {"norm": "rank"}),
    (bayesfuse, {}),
]


@pytest.mark.parametrize(("twin", "settings"), TWINS, ids=[twin.__name__ for twin, _ in TWINS])
def test_learned_from_labels(twin, settings, tmp_path):
    fitted = fit(twin.__name__, DATA, **settings)
    save_model(tmp_path / "model", fitted)
    scores = {(r["query"], r["item"]): r["score"] for r in rank(load_model(tmp_path / "model"), DATA).to_pylist()}
    expected = dict.fromkeys(scores, 0.0)
    for (q, e), items in LISTS.items():
        for place, item in enumerate(items):
            expected[f"q{q}", item] += twin(e, place, items)
    assert scores == pytest.approx(expected, abs=1e-9)


def test_an_unseen_expert_adds_nothing():
    fitted = fit("posfuse", DATA)
    worth = fitted.params_for(("a", "new"))["expert_worth"]
    assert worth[0].any()
    assert not worth[1].any()


def test_labels_are_needed():
    with pytest.raises(UsageError, match="must be fitted first"):
        rank("probfuse", DATA)
