"""The trec protocol against pytrec_eval (trec_eval itself) and, for ERR, gdeval through ir_measures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distagg.errors import UsageError
from distagg.metrics import parse_metrics, score_chunk

pytrec_eval = pytest.importorskip("pytrec_eval")

CUTOFFS = (1, 2, 3, 5, 10, 50)
NAMES = {"ndcg": "ndcg", "map": "map", "mrr": "recip_rank"} | {
    f"{ours}@{k}": f"{theirs}_{k}"
    for ours, theirs in (("ndcg", "ndcg_cut"), ("p", "P"), ("map", "map_cut"))
    for k in CUTOFFS
}
CUT = ",".join(map(str, CUTOFFS))
MEASURES = {"ndcg", "map", "recip_rank", f"ndcg_cut.{CUT}", f"P.{CUT}", f"map_cut.{CUT}"}


def random_problem(rng: np.random.Generator, *, ties: bool, missed: bool, low: int) -> tuple[Any, Any, Any, Any]:
    """Labels, ids, scores and missed labels of 30 queries; some unjudged items, some queries without a judgement."""
    labels, ids, scores, lost = [], [], [], []
    for _ in range(30):
        n = int(rng.integers(1, 60))
        grades = rng.integers(low, 4, n)
        unjudged = rng.random(n) < rng.choice([0.0, 0.3, 1.0], p=[0.5, 0.4, 0.1])
        labels.append([None if u else int(g) for g, u in zip(grades, unjudged, strict=True)])
        ids.append([f"d{i}" for i in rng.permutation(n * 3)[:n]])
        values = rng.integers(0, 5, n).astype(float) if ties else rng.normal(size=n)
        scores.append(np.where(rng.random(n) < 0.1, -np.inf, values))
        lost.append([int(g) for g in rng.integers(low, 4, int(rng.integers(0, 6)))] if missed else [])
    return labels, ids, scores, lost


def oracle(labels: Any, ids: Any, scores: Any, lost: Any) -> dict[str, dict[str, float]]:
    qrels, run = {}, {}
    for q, names in enumerate(ids):
        judged = {name: label for name, label in zip(names, labels[q], strict=True) if label is not None}
        judged |= {f"missed{i}": label for i, label in enumerate(lost[q])}
        if judged:
            qrels[f"q{q}"] = judged
        run[f"q{q}"] = {name: float(s) for name, s in zip(names, scores[q], strict=True) if s > -np.inf}
    return pytrec_eval.RelevanceEvaluator(qrels, MEASURES).evaluate(run)


@pytest.mark.parametrize("low", [0, -2])
@pytest.mark.parametrize("missed", [False, True])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_equals_pytrec_eval(make_chunk: Any, seed: int, ties: bool, missed: bool, low: int) -> None:
    labels, ids, scores, lost = random_problem(np.random.default_rng(seed), ties=ties, missed=missed, low=low)
    chunk = make_chunk(labels, ids, lost)
    values = score_chunk(chunk, np.concatenate(scores), parse_metrics(list(NAMES)), protocol="trec")
    wanted = oracle(labels, ids, scores, lost)
    assert len(wanted) > 20
    for q, row in enumerate(values):
        if f"q{q}" not in wanted:
            assert np.isnan(row).all()
            continue
        np.testing.assert_allclose(row, [wanted[f"q{q}"][name] for name in NAMES.values()], rtol=0, atol=1e-9)


def test_scores_tie_in_single_precision_and_ids_compare_as_bytes(make_chunk: Any) -> None:
    ids = [["a", "b"], ["z", "é"], ["d9", "d10"]]
    scores = [np.array([1 + 1e-12, 1.0]), np.ones(2), np.array([1e300, 2e300])]
    labels = [[1, 0]] * 3
    values = score_chunk(make_chunk(labels, ids), np.concatenate(scores), parse_metrics(["mrr"]), protocol="trec")
    wanted = oracle(labels, ids, scores, [[]] * 3)
    assert values[:, 0].tolist() == [wanted[f"q{q}"]["recip_rank"] for q in range(3)] == [0.5, 0.5, 1.0]


def test_item_that_is_not_retrieved_counts_among_the_relevant_only(make_chunk: Any) -> None:
    chunk = make_chunk([[1, 1]], [["a", "b"]])
    values = score_chunk(chunk, np.array([1.0, -np.inf]), parse_metrics(["map", "p@2", "mrr"]), protocol="trec")
    np.testing.assert_allclose(values, [[0.5, 0.5, 1.0]])
    nothing = score_chunk(chunk, np.full(2, -np.inf), parse_metrics(["map", "ndcg"]), protocol="trec")
    np.testing.assert_array_equal(nothing, [[0.0, 0.0]])


def test_needs_ids(make_chunk: Any) -> None:
    chunk = make_chunk([[1]], [["a"]])
    object.__setattr__(chunk, "item_ids", chunk.item_ids[:0])
    with pytest.raises(UsageError, match="load the chunk with its ids"):
        score_chunk(chunk, np.zeros(1), parse_metrics(["map"]), protocol="trec")


@pytest.mark.filterwarnings("default")  # the oracle leaves its temporary files to the garbage collector
def test_err_equals_gdeval_with_its_highest_grade(make_chunk: Any) -> None:
    """gdeval fixes the highest grade at 4 and prints five digits: err(4) is the same number."""
    ir_measures = pytest.importorskip("ir_measures")
    if not ir_measures.gdeval.is_available():
        pytest.skip("gdeval needs perl")
    rng = np.random.default_rng(3)
    labels = [[int(g) for g in rng.integers(0, 5, 30)] for _ in range(8)]
    scores = [rng.permutation(30).astype(float) for _ in labels]
    qrels = [ir_measures.Qrel(f"{q}", f"d{i}", g) for q, row in enumerate(labels) for i, g in enumerate(row)]
    run = [ir_measures.ScoredDoc(f"{q}", f"d{i}", float(s)) for q, row in enumerate(scores) for i, s in enumerate(row)]
    wanted = {
        (int(m.query_id), m.measure.params["cutoff"]): m.value
        for m in ir_measures.gdeval.iter_calc([ir_measures.ERR @ 5, ir_measures.ERR @ 20], qrels, run)
    }
    metrics = parse_metrics(["err(4)@5", "err(4)@20"])
    values = score_chunk(make_chunk(labels), np.concatenate(scores), metrics, protocol="trec")
    np.testing.assert_allclose(values, [[wanted[q, 5], wanted[q, 20]] for q in range(8)], rtol=0, atol=6e-6)


def test_mrr_at_a_cutoff_equals_the_msmarco_script(make_chunk: Any) -> None:
    ir_measures = pytest.importorskip("ir_measures")
    rng = np.random.default_rng(4)
    labels = [[int(g) for g in rng.random(20) < 0.1] for _ in range(20)]
    labels = [
        row if any(row) else [1, *row[1:]] for row in labels
    ]  # the script leaves out queries without relevant items
    scores = [rng.permutation(20).astype(float) for _ in labels]
    qrels = [ir_measures.Qrel(f"{q}", f"d{i}", g) for q, row in enumerate(labels) for i, g in enumerate(row)]
    run = [ir_measures.ScoredDoc(f"{q}", f"d{i}", float(s)) for q, row in enumerate(scores) for i, s in enumerate(row)]
    wanted = {int(m.query_id): m.value for m in ir_measures.msmarco.iter_calc([ir_measures.RR @ 10], qrels, run)}
    values = score_chunk(make_chunk(labels), np.concatenate(scores), parse_metrics(["mrr@10"]), protocol="trec")
    np.testing.assert_allclose(values[:, 0], [wanted[q] for q in range(20)], atol=1e-12)


def test_rbp_is_the_papers_sum(make_chunk: Any) -> None:
    """Moffat and Zobel 2008: (1 - p) sum p^(i - 1), missed and unjudged items add nothing."""
    chunk = make_chunk([[1, None, 2, 0]], missed=[[1]])
    values = score_chunk(chunk, np.array([4.0, 3, 2, 1]), parse_metrics(["rbp(0.95)", "rbp"]), protocol="trec")
    np.testing.assert_allclose(values, [[0.05 * (1 + 0.95**2), 0.2 * (1 + 0.8**2)]])
