"""The trec protocol against pytrec_eval (trec_eval itself) and ir_measures; its gdeval prints five digits only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from distagg.errors import UsageError
from distagg.metrics import parse_metrics, score_chunk
from tests.strategies import drawn_judgements

pytrec_eval = pytest.importorskip("pytrec_eval")

CUTOFFS = (1, 2, 3, 5, 10, 50)
NAMES = {
    "ndcg": "ndcg", "map": "map", "mrr": "recip_rank", "rprec": "Rprec", "bpref": "bpref", "infap": "infAP",
    "recall": "set_recall", "f1": "set_F",
} | {
    f"{ours}@{k}": f"{theirs}_{k}"
    for ours, theirs in (("ndcg", "ndcg_cut"), ("p", "P"), ("map", "map_cut"), ("recall", "recall"),
                         ("success", "success"))
    for k in CUTOFFS
}  # fmt: skip
CUT = ",".join(map(str, CUTOFFS))
MEASURES = {name for name in NAMES.values() if not name[-1].isdigit()} | {
    f"{name}.{CUT}" for name in ("ndcg_cut", "P", "map_cut", "recall", "success")
}
BINARY = [name for name in NAMES if not name.startswith("ndcg")]


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


def drawn_problem() -> tuple[Any, Any, Any, Any]:
    """What hypothesis draws, in the same form."""
    drawn = drawn_judgements()
    labels = [[label for label, _ in query.items] for query in drawn]
    ids = [[f"d{i}" for i in range(len(query.items))] for query in drawn]
    scores = [np.array([-np.inf if score is None else score for _, score in query.items]) for query in drawn]
    return labels, ids, scores, [list(query.missed) for query in drawn]


@cache
def problem_of(kind: str) -> tuple[Any, Any, Any, Any]:
    """Two kinds of problem: "drawn" has small queries with many ties, "random" longer ones of each sort."""
    if kind == "drawn":
        return drawn_problem()
    sorts = itertools.product((False, True), (False, True), (0, -2), range(3))
    problems = [
        random_problem(np.random.default_rng(seed), ties=ties, missed=missed, low=low)
        for ties, missed, low, seed in sorts
    ]
    labels, ids, scores, lost = (list(itertools.chain(*parts)) for parts in zip(*problems, strict=True))
    return labels, ids, scores, lost


@pytest.fixture(params=["drawn", "random"])
def problem(request: pytest.FixtureRequest) -> tuple[Any, Any, Any, Any]:
    return problem_of(request.param)


def dictionaries(labels: Any, ids: Any, scores: Any, lost: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Judgements and run as pytrec_eval and ir_measures take them."""
    qrels, run = {}, {}
    for q, names in enumerate(ids):
        judged = {name: label for name, label in zip(names, labels[q], strict=True) if label is not None}
        judged |= {f"missed{i}": label for i, label in enumerate(lost[q])}
        if judged:
            qrels[f"q{q}"] = judged
        run[f"q{q}"] = {name: float(s) for name, s in zip(names, scores[q], strict=True) if s > -np.inf}
    return qrels, run


def oracle(labels: Any, ids: Any, scores: Any, lost: Any, **options: int) -> dict[str, dict[str, float]]:
    """Without queries whose labels are all negative, or that have no ranked item: trec_eval leaves its arrays there."""
    qrels, run = dictionaries(labels, ids, scores, lost)
    qrels = {query: judged for query, judged in qrels.items() if max(judged.values()) >= 0 and run[query]}
    return pytrec_eval.RelevanceEvaluator(qrels, MEASURES, **options).evaluate(run)


def values_of(make_chunk: Any, problem: Any, names: Sequence[str]) -> np.ndarray:
    labels, ids, scores, lost = problem
    return score_chunk(make_chunk(labels, ids, lost), np.concatenate(scores), parse_metrics(names), protocol="trec")


@pytest.mark.parametrize("level", [1, 2])
def test_equals_pytrec_eval(make_chunk: Any, problem: Any, level: int) -> None:
    asked = list(NAMES) if level == 1 else BINARY
    named = [name if level == 1 else "{}(rel=2){}{}".format(*name.partition("@")) for name in asked]
    wanted, judged = oracle(*problem, relevance_level=level), dictionaries(*problem)[0]
    assert len(wanted) > 100
    for q, row in enumerate(values_of(make_chunk, problem, named)):
        if f"q{q}" not in wanted:
            assert (row == 0).all() if f"q{q}" in judged else np.isnan(row).all()
            continue
        np.testing.assert_allclose(row, [wanted[f"q{q}"][NAMES[name]] for name in asked], rtol=0, atol=1e-9)


def test_exponential_gains_equal_pytrec_eval_with_mapped_labels(make_chunk: Any, problem: Any) -> None:
    labels, *others, lost = problem
    powers = {None: None, 0: 0, 1: 1, 2: 3, 3: 7, -1: -1, -2: -2}
    mapped = (
        [[powers[label] for label in row] for row in labels],
        *others,
        [[powers[label] for label in row] for row in lost],
    )
    names = ["ndcg", "ndcg@2", "ndcg@10", "dcg", "dcg@3"]
    exponential = values_of(make_chunk, problem, ["{}(exp){}{}".format(*name.partition("@")) for name in names])
    linear = values_of(make_chunk, mapped, ["{}(linear){}{}".format(*name.partition("@")) for name in names])
    np.testing.assert_array_equal(exponential, linear)
    wanted = oracle(*mapped)
    for q, row in enumerate(exponential):
        if f"q{q}" in wanted:
            np.testing.assert_allclose(row[:3], [wanted[f"q{q}"][NAMES[n]] for n in names[:3]], rtol=0, atol=1e-9)


def test_dcg_f1_and_judged_follow_their_definitions(make_chunk: Any, problem: Any) -> None:
    """With ties broken by descending id, as trec_eval does."""
    qrels, run = dictionaries(*problem)
    values = values_of(make_chunk, problem, ["dcg@4", "f1@4", "judged@4", "judged"])
    for q, row in enumerate(values):
        judged = qrels.get(f"q{q}")
        if judged is None:
            continue
        ranking = [item for _, item in sorted(((s, item) for item, s in run[f"q{q}"].items()), reverse=True)]
        labels = [max(judged.get(item, 0), 0) for item in ranking]
        hits, relevant = sum(label >= 1 for label in labels[:4]), sum(label >= 1 for label in judged.values())
        precision, recall = hits / 4, hits / relevant if relevant else 0.0
        known = [item in judged for item in ranking]
        wanted = [
            sum(label / math.log2(i + 1) for i, label in enumerate(labels[:4], start=1)),
            2 * precision * recall / (precision + recall) if hits else 0.0,
            sum(known[:4]) / len(known[:4]) if known else 0.0,
            sum(known) / len(known) if known else 0.0,
        ]
        np.testing.assert_allclose(row, wanted, rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ast, in ir_measures, on Python 3.13
def test_equals_ir_measures(make_chunk: Any) -> None:
    """Judged rate of ir_measures breaks ties by ascending id, so the problem has none."""
    ir_measures = pytest.importorskip("ir_measures")
    problem = random_problem(np.random.default_rng(5), ties=False, missed=True, low=-1)
    qrels, run = dictionaries(*problem)
    run = {query: items for query, items in run.items() if items}  # it divides by the number of items
    written = ["Judged@1", "Judged@10", "Judged", "nDCG@10", "AP(rel=2)@20", "R@5", "P(rel=2)@5", "RR", "Rprec",
               "infAP", "Bpref", "Success@3", "SetF", "SetR"]  # fmt: skip
    measures = [ir_measures.parse_measure(name) for name in written]
    wanted = {(m.query_id, m.measure): m.value for m in ir_measures.iter_calc(measures, qrels, run)}
    values = values_of(make_chunk, problem, written)
    seen = [q for q in range(len(values)) if f"q{q}" in qrels and f"q{q}" in run]
    expected = [[wanted[f"q{q}", measure] for measure in measures] for q in seen]
    np.testing.assert_allclose(values[seen], expected, rtol=0, atol=1e-9)


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


def test_letor_differs_in_ties_items_left_out_and_ndcg_only(make_chunk: Any) -> None:
    """Without ties, and with every item ranked and judged or unjudged, the other metrics are the same."""
    labels, ids, scores, _ = random_problem(np.random.default_rng(6), ties=False, missed=False, low=-2)
    ranked = np.concatenate([np.where(own == -np.inf, -9.0 - np.arange(len(own)), own) for own in scores])
    names = parse_metrics(["p@3", "recall@5", "f1@4", "f1", "success@1", "map(rel=2)", "mrr", "rprec", "bpref", "infap",
                           "rbp", "judged@7", "err(3)"])  # fmt: skip
    chunk = make_chunk(labels, ids)
    trec, letor = (score_chunk(chunk, ranked, names, protocol=protocol) for protocol in ("trec", "letor"))
    judged = ~np.isnan(trec[:, 0])
    assert 10 < judged.sum() < 30
    np.testing.assert_array_equal(trec[judged], letor[judged])
    assert not letor[~judged].any()
