from __future__ import annotations

import pytest

from distagg.errors import UsageError
from distagg.metrics import Metric, parse_metric
from distagg.metrics.metric import FAMILIES, check_protocol
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
    ],
)
def test_reads_names_and_gives_them_back(text: str, metric: Metric) -> None:
    assert parse_metric(text) == metric
    assert parse_metric(str(metric)) == metric
    assert str(metric) == text.strip().lower()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ndgc@5", "did you mean 'ndcg'"),
        ("recall@5", "known: ndcg, p, map"),
        ("p", "needs a cutoff, like p@10"),
        ("ndcg@0", "whole number from 1"),
        ("ndcg@five", "found the cutoff 'five'"),
        ("ndcg@", "found the cutoff ''"),
        ("tau@5", "takes no cutoff; write tau"),
        ("map(3)", "takes nothing in parentheses"),
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
