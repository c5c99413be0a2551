from __future__ import annotations

from pathlib import Path

import pytest

from distagg.errors import UsageError
from distagg.metrics import Metric, parse_metric
from distagg.metrics.metric import ALIASES, FAMILIES, check_protocol
from distagg.metrics.score import SCORERS


@pytest.mark.parametrize(
    ("text", "metric"),
    [
        ("ndcg", Metric("ndcg")),
        ("NDCG@10", Metric("ndcg", 10)),
        (" p@3 ", Metric("p", 3)),
        ("map", Metric("map")),
        ("MAP@5", Metric("map", 5)),
        ("mrr@10", Metric("mrr", 10)),
        ("err@20", Metric("err", 20)),
        ("err(4)@20", Metric("err", 20, 4.0)),
        ("rbp(0.95)", Metric("rbp", None, 0.95)),
        ("rbp(0.123456789)@7", Metric("rbp", 7, 0.123456789)),
        ("tau", Metric("tau")),
        ("recall@100", Metric("recall", 100)),
        ("ndcg(exp)@10", Metric("ndcg", 10, gain="exp")),
        ("dcg(linear)", Metric("dcg", gain="linear")),
        ("map(rel=2)@5", Metric("map", 5, level=2)),
        ("rbp(0.5,rel=3)", Metric("rbp", None, 0.5, level=3)),
    ],
)
def test_reads_names_and_gives_them_back(text: str, metric: Metric) -> None:
    assert parse_metric(text) == metric
    assert parse_metric(str(metric)) == metric
    assert str(metric) == text.strip().lower()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        # trec_eval
        ("recip_rank", "mrr"), ("ndcg_cut_10", "ndcg@10"), ("ndcg_cut.10", "ndcg@10"), ("recall_10", "recall@10"),
        ("P_10", "p@10"), ("map_cut_100", "map@100"), ("Rprec", "rprec"), ("success_1", "success@1"),
        ("bpref", "bpref"), ("infAP", "infap"), ("set_recall", "recall"), ("set_F", "f1"),
        # ir-measures
        ("nDCG@10", "ndcg@10"), ("RR", "mrr"), ("RR@10", "mrr@10"), ("AP", "map"), ("AP@100", "map@100"),
        ("R@100", "recall@100"), ("P@5", "p@5"), ("P(rel=2)@5", "p(rel=2)@5"), ("Success@1", "success@1"),
        ("Judged@10", "judged@10"), ("RBP(p=0.8)", "rbp(0.8)"), ("RBP(rel=2, p=0.8)", "rbp(0.8,rel=2)"),
        ("ERR@20", "err@20"), ("SetF", "f1"), ("SetR", "recall"), ("AP(rel=1)", "map"),
        ("nDCG(dcg='exp-log2')@10", "ndcg(exp)@10"), ("nDCG(dcg='log2',judged_only=False)@10", "ndcg(linear)@10"),
        # BEIR and MTEB, ranx
        ("ndcg_at_10", "ndcg@10"), ("hit_rate_at_5", "success@5"), ("precision_at_1", "p@1"), ("hit@5", "success@5"),
        ("hit_rate@5", "success@5"), ("r-precision", "rprec"), ("rbp.95", "rbp(0.95)"),
        ("ndcg_burges@10", "ndcg(exp)@10"), ("ndcg(exponential)@10", "ndcg(exp)@10"),
    ],
)  # fmt: skip
def test_reads_the_names_of_others(theirs: str, ours: str) -> None:
    assert str(parse_metric(theirs)) == ours == str(parse_metric(ours))
    assert str(parse_metric(theirs.upper())) == ours


def test_aliases_stand_for_families() -> None:
    assert not ALIASES.keys() & FAMILIES.keys()
    assert {name.partition("(")[0] for name in ALIASES.values()} <= FAMILIES.keys()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ndgc@5", "did you mean 'ndcg'"),
        ("recip_rnk", "did you mean 'recip_rank'"),
        ("xyz", "known: ndcg, dcg, p, recall"),
        ("success", "needs a cutoff"),
        ("RBO", "use distagg.rbo(a, b)"),
        ("bpref@5", "takes no cutoff"),
        ("P.5,10", "found the cutoff '5,10' in the metric 'P.5,10'"),
        ("ndcg(cube)@5", "found 'cube' as the gain of the metric 'ndcg(cube)@5', expected linear or exp"),
        ("nDCG(gains={1:2})@5", "found 'gains={1:2}' in the metric 'nDCG(gains={1:2})@5', expected linear or exp"),
        ("P(judged_only=True)@5", "found 'judged_only=true' in the metric"),
        ("map(rel=0)", "found '0' as the lowest relevant label"),
        ("map()", "found '' in the metric 'map()', expected rel=LABEL"),
        ("p", "needs a cutoff, like p@10"),
        ("ndcg@0", "whole number from 1"),
        ("ndcg@five", "found the cutoff 'five'"),
        ("ndcg@", "found the cutoff ''"),
        ("tau@5", "takes no cutoff; write tau"),
        ("map(3)", "found '3' in the metric 'map(3)', expected rel=LABEL"),
        ("tau(3)", "takes nothing in parentheses"),
        ("rbp(1)", "found '1' as the persistence"),
        ("rbp(x)", "between 0 and 1"),
        ("err(2.5)", "expected a whole number"),
        ("err(inf)", "expected a whole number"),
        ("", "cannot read the metric"),
        ("rbp(0.9", "cannot read the metric"),
    ],
)
def test_refuses_with_the_remedy(text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_metric(text)
    assert says in str(error.value)


def test_every_family_has_a_scorer() -> None:
    assert list(FAMILIES) == list(SCORERS)


def test_unknown_protocol() -> None:
    with pytest.raises(UsageError, match="did you mean 'letor'"):
        check_protocol("lettor")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_stands_in_the_guide(name: str) -> None:
    guide = Path(__file__).parents[2] / "jobs" / "guides" / "metrics.md"
    rows = [line.split("|")[1] for line in guide.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert sum(f"`{name}`" in row or f"`{name}@k`" in row for row in rows) == 1
