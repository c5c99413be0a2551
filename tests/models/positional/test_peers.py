"""Fusion rules beside ranx, pyflagr and Qdrant: the same scores, or the difference that the docstrings name.

``peers.json`` says which program and call made each answer.
"""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from distagg import Dataset, fit, rank

PEERS = json.loads((Path(__file__).parent / "peers.json").read_text())
CASES = [case for case in PEERS["cases"] if case["model"] != "dibra"]
# Their scores differ from ours by one number for all items of a query: what lists give the items that they leave out.
COUNTED_FROM_ELSEWHERE = ("ranx bordafuse", "ranx comb_sum after borda", "ranx bayesfuse")
# In the data of ranx's tests run_3 has one item for q1: we give it 1, and ranx 0, under these norms.
SINGLE = ("ranx", ("minmax", "sum"), "q1")


def dataset(name):
    runs, qrels = PEERS["data"][name]["runs"], PEERS["data"][name]["qrels"]
    rows = [
        {"query": query, "expert": expert, "item": item, "score": float(score)}
        for expert, run in runs.items()
        for query, items in run.items()
        for item, score in items.items()
    ]
    labels = [{"query": q, "item": i, "label": label} for q, items in qrels.items() for i, label in items.items()]
    return Dataset.from_arrow(pa.Table.from_pylist(rows), judgements=pa.Table.from_pylist(labels))


DATASETS = {name: dataset(name) for name in PEERS["data"]}


def our_scores(case):
    data = DATASETS[case["data"]]
    scores = {query: {} for query in case["scores"]}
    for row in rank(fit(case["model"], data, **case["settings"]), data).to_pylist():
        scores[row["query"]][row["item"]] = row["score"]
    return scores


@pytest.mark.parametrize("case", CASES, ids=[f"{case['peer']}, {case['data']}" for case in CASES])
def test_scores_of_peers(case):
    ours = our_scores(case)
    for query, theirs in case["scores"].items():
        assert ours[query].keys() == theirs.keys()
        mine, peer = (np.array([scores[item] for item in theirs]) for scores in (ours[query], theirs))
        if (case["data"], query) == (SINGLE[0], SINGLE[2]) and case["settings"].get("norm") in SINGLE[1]:
            assert (np.flatnonzero(np.abs(mine - peer) > 1e-9) == list(theirs).index("d3")).all()
            continue
        if case["peer"] in COUNTED_FROM_ELSEWHERE:
            mine, peer = mine - mine.mean(), peer - peer.mean()
        if case["model"] == "rra":
            mine = np.minimum(np.exp(-mine), 1.0)
        atol = 1e-6 if case["peer"].startswith("pyflagr") else 1e-9
        np.testing.assert_allclose(mine, peer, rtol=1e-9, atol=atol)


def dibra(lists, *, flagr, gamma=1.5, tolerance=0.01, rounds=50):
    """From the formula; or with what FLAGR does otherwise."""
    items = sorted({item for entries in lists for item in entries})
    size, weights = len(items), [1.0] * len(lists)

    def scores():
        return {
            i: sum(
                w * ((size - entries.index(i)) / size if i in entries else (size - len(entries) + 1) / (2 * size))
                for w, entries in zip(weights, lists, strict=True)
            )
            for i in items
        }

    for number in range(1, rounds + 1 + flagr):
        score = scores()
        better = {i: sum(score[j] > score[i] + 1e-9 for j in items) for i in items}
        tied = {i: sum(abs(score[j] - score[i]) <= 1e-9 for j in items) for i in items}
        places = {i: better[i] + (tied[i] + 1) / 2 for i in items}
        if flagr:
            places = {i: n for n, i in enumerate(sorted(items, key=lambda i, of=score: -of[i]))}
        gains, still = [], False
        for entries in lists:
            counted = list(enumerate(entries, 1))[: len(entries) - flagr]
            distance = 2 / len(entries) * sum(abs(places[i] / size - n / len(entries)) for n, i in counted)
            gains.append(0.0 if flagr and distance == 0 else math.exp(-gamma * number * distance))
            still = still or (gains[-1] > tolerance and distance > 0)
        weights = [w + gain for w, gain in zip(weights, gains, strict=True)]
        if not still:
            break
    final = scores()
    base = sum(w * (size - len(entries) + 1) / (2 * size) for w, entries in zip(weights, lists, strict=True))
    return score if flagr else {i: final[i] - base for i in items}


@pytest.mark.parametrize("case", [case for case in PEERS["cases"] if case["model"] == "dibra"], ids=lambda c: c["data"])
def test_dibra_differs_from_flagr_as_its_docstring_says(case):
    ours, runs = our_scores(case), PEERS["data"][case["data"]]["runs"]
    for query, theirs in case["scores"].items():
        lists = [sorted(run[query], key=lambda i, of=run[query]: -of[i]) for run in runs.values()]
        mine = dibra(lists, flagr=False)
        np.testing.assert_allclose([ours[query][i] for i in theirs], [mine[i] for i in theirs], rtol=1e-9)
        if case["data"] == "ranx" or query == "q2":  # in the others FLAGR orders tied items by chance
            quirks = dibra(lists, flagr=True)
            np.testing.assert_allclose([quirks[i] for i in theirs], list(theirs.values()), atol=1e-6)
