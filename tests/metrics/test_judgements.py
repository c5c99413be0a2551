"""Runs joined to judgements by id, against pytrec_eval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from distagg.errors import InputError, UsageError
from distagg.metrics import index_rankings, parse_metrics
from distagg.metrics import judgements as module
from distagg.metrics.judgements import evaluate_judged, index_judgements
from tests.strategies import drawn_judgements

NAMES = {"ndcg": "ndcg", "map": "map", "recall@2": "recall_2", "bpref": "bpref", "infap": "infAP", "mrr": "recip_rank"}


def qrels_of(*rows: tuple[str, str, float]) -> pa.Table:
    return pa.table(dict(zip(("query", "item", "label"), zip(*rows, strict=True), strict=True)))


def run_of(*rows: tuple[str, str, float]) -> pa.Table:
    return pa.table(dict(zip(("query", "item", "score"), zip(*rows, strict=True), strict=True)))


def drawn_rows() -> tuple[list[tuple[str, str, float]], list[tuple[str, str, float]]]:
    """Rows of a run and of judgements; ids repeat between queries, some queries are on one side only."""
    run, judged = [], []
    for q, query in enumerate(drawn_judgements()):
        run += [(f"q{q}", f"d{i}", score) for i, (_, score) in enumerate(query.items) if score is not None]
        labels = [(f"d{i}", label) for i, (label, _) in enumerate(query.items) if label is not None]
        labels += [(f"missed{i}", label) for i, label in enumerate(query.missed)]
        if any(label >= 0 for _, label in labels):  # trec_eval cannot take only negative ones
            judged += [(f"q{q}", item, label) for item, label in labels]
    return run, judged


@pytest.mark.parametrize("block_rows", [50, 1 << 17])
def test_equals_pytrec_eval(monkeypatch: pytest.MonkeyPatch, block_rows: int) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    monkeypatch.setattr(module, "BLOCK_ROWS", block_rows)
    run, judged = drawn_rows()
    as_run: dict[str, dict[str, Any]] = {}
    as_qrels: dict[str, dict[str, Any]] = {}
    for rows, dictionary in ((run, as_run), (judged, as_qrels)):
        for query, item, value in rows:
            dictionary.setdefault(query, {})[item] = value
    wanted = pytrec_eval.RelevanceEvaluator(as_qrels, {*NAMES.values()} - {"recall_2"} | {"recall.2"}).evaluate(as_run)
    shuffled = [run[i] for i in np.random.default_rng(0).permutation(len(run))]
    index, judgements = index_rankings(run_of(*shuffled)), index_judgements(qrels_of(*judged))
    result = evaluate_judged(index, judgements, parse_metrics(list(NAMES)), protocol="trec")
    assert result.missing == tuple(query for query in as_qrels if query not in as_run)
    assert {*result.unjudged} == as_run.keys() - as_qrels.keys()
    assert result.missing
    assert result.unjudged
    for query, row in zip(result.evaluation.query_ids.to_pylist(), result.evaluation.values, strict=True):
        own = wanted.get(query, dict.fromkeys(NAMES.values(), 0.0))
        np.testing.assert_allclose(row, [own[name] for name in NAMES.values()], rtol=0, atol=1e-9)


def test_missing_queries_may_be_left_out() -> None:
    judgements = index_judgements(qrels_of(("1", "x", 1), ("2", "x", 1)))
    index = index_rankings(run_of(("1", "x", 1.0)))
    for skip, values, mean in ((False, [1.0, 0.0], 0.5), (True, [1.0, np.nan], 1.0)):
        result = evaluate_judged(index, judgements, parse_metrics(["mrr"]), protocol="trec", skip_missing=skip)
        np.testing.assert_array_equal(result.evaluation.values[:, 0], values)
        assert result.evaluation.means == {"mrr": mean}


def test_items_that_the_run_lacks_come_last_under_letor() -> None:
    judgements = index_judgements(qrels_of(("1", "x", 0), ("1", "y", 1)))
    index = index_rankings(run_of(("1", "z", 3.0), ("1", "x", 2.0)))
    result = evaluate_judged(index, judgements, parse_metrics(["mrr", "ndcg@3"]), protocol="letor")
    np.testing.assert_allclose(result.evaluation.values, [[1 / 3, np.log(2) / np.log(3)]])


def test_the_highest_grade_of_err_is_that_of_all_judgements() -> None:
    judgements = index_judgements(qrels_of(("1", "x", 1), ("2", "x", 3), ("3", "x", -1)))
    result = evaluate_judged(
        index_rankings(run_of(("1", "x", 1.0))), judgements, parse_metrics(["err"]), protocol="trec"
    )
    np.testing.assert_array_equal(result.evaluation.values[:, 0], [1 / 8, 0, 0])


def test_fractional_labels_are_gains_and_never_rounded() -> None:
    judgements = index_judgements(qrels_of(("1", "x", 0.25), ("1", "y", 1), ("1", "z", 1.5), ("2", "x", 1)))
    index = index_rankings(run_of(("1", "x", 3.0), ("1", "u", 2.0), ("1", "y", 1.0), ("2", "x", 1.0)))
    metrics = parse_metrics(["dcg", "ndcg@2", "dcg(exp)@1", "judged", "tau"])
    result = evaluate_judged(index, judgements, metrics, protocol="trec")
    log3 = np.log2(3)
    wanted = [0.25 + 1 / 2, 0.25 / (1.5 + 1 / log3), 2**0.25 - 1, 2 / 3, -1.0]
    np.testing.assert_allclose(result.evaluation.values[0], wanted)
    for name in ("map", "p@5", "err", "bpref"):
        with pytest.raises(UsageError, match=r"judgements: found the label 0.25, but .* is defined on whole grades"):
            evaluate_judged(index, judgements, parse_metrics(["ndcg", name]), protocol="trec")


def test_refuses_repeated_items() -> None:
    for bad in (np.nan, 2.0**31):
        with pytest.raises(InputError, match=r"q.txt: found the label (nan|2.1.*) in row 2, expected a number"):
            index_judgements(qrels_of(("1", "x", 1), ("1", "y", bad)), source="q.txt")
    with pytest.raises(InputError, match="found columns query, item, score, expected columns query, item and label"):
        index_judgements(run_of(("1", "x", 1)))
    good, twice = [("2", "x", 1), ("1", "x", 1)], [("1", "y", 1), ("2", "y", 2), ("1", "y", 3)]
    for run, judged, source in ((good + twice, good, "rankings"), (good, good + twice, "judgements")):
        index, judgements = index_rankings(run_of(*run)), index_judgements(qrels_of(*judged))
        with pytest.raises(InputError, match=f"{source}: found more than one row for item 'y' in query '1'"):
            evaluate_judged(index, judgements, parse_metrics(["map"]), protocol="trec")
