"""Evaluate several runs against relevance judgements, straight from files, with paired significance tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from distagg.engine.compare import DEFAULT_METRICS, paired_test_rows
from distagg.engine.data import as_labels, as_rankings
from distagg.errors import UsageError, unknown
from distagg.metrics import Metric, Protocol, check_protocol, index_rankings, parse_metrics
from distagg.metrics.changes import rbo as rank_overlap
from distagg.metrics.judgements import JudgedRun, evaluate_judged, index_judgements


@dataclass(frozen=True, slots=True, eq=False)
class RunsEvaluation:
    """The evaluation of every run, and the tests of each run against the baseline."""

    runs: Mapping[str, JudgedRun]
    metrics: tuple[Metric, ...]
    protocol: Protocol
    baseline: str
    missing: Literal["zero", "skip"]  # how judged queries count that a run lacks
    tests: list[dict[str, Any]]  # difference, interval and p-values of each run against the baseline, by metric

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """{run: {metric: mean over queries}}."""
        return {name: run.evaluation.means for name, run in self.runs.items()}

    @property
    def query_ids(self) -> list[str]:
        """The judged queries, in the order of the values."""
        ids: list[str] = next(iter(self.runs.values())).evaluation.query_ids.to_pylist()
        return ids

    def notes(self) -> list[str]:
        """A line for each run that lacks judged queries or has queries without judgements."""
        lines = []
        counted = "count as 0" if self.missing == "zero" else "are left out of its means"
        for name, run in self.runs.items():
            if run.missing:
                share = f"{len(run.missing):,} of {len(self.query_ids):,}"
                lines.append(f"{name}: judged queries missing from the run {counted}: {share} ({_some(run.missing)})")
            if run.unjudged:
                where = f"{len(run.unjudged):,} ({_some(run.unjudged)})"
                lines.append(f"{name}: queries without judgements are not evaluated: {where}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Plain values in the form of ``compare``'s result, with the runs as its models."""
        names = [str(metric) for metric in self.metrics]
        return {
            "protocol": self.protocol,
            "baseline": self.baseline,
            "models": list(self.runs),
            "metrics": names,
            "means": self.means,
            "tests": self.tests,
            "query_ids": self.query_ids,
            "per_query": {
                name: dict(zip(names, run.evaluation.values.T.tolist(), strict=True)) for name, run in self.runs.items()
            },
            "counted": self.missing,
            "missing": {name: list(run.missing) for name, run in self.runs.items()},
            "unjudged": {name: list(run.unjudged) for name, run in self.runs.items()},
        }


def evaluate_runs(
    runs: Mapping[str, Any] | Sequence[str | Path],
    qrels: Any,
    metrics: Sequence[str | Metric] = DEFAULT_METRICS,
    *,
    protocol: str | None = None,
    baseline: str | None = None,
    missing: Literal["zero", "skip"] = "zero",
    seed: int = 0,
) -> RunsEvaluation:
    """Evaluate runs against judgements: every metric for every judged query, means, and paired tests.

    Every judged query counts for every run, so that all runs are averaged over the same queries: a query that a run
    lacks has 0 (trec_eval -c, ir-measures). Queries of a run that have no judgements are not evaluated.
    ``RunsEvaluation.notes()`` tells of both.

    Parameters
    ----------
    runs
        Files (TREC runs, CSV, Parquet or the output of ``rank``), named after the file; or a mapping from names to
        files, to frames or tables with the columns query, item, and rank or score, or to runs
        ``{query: {item: score}}``.
    qrels
        A file of judgements, a frame or table with the columns query, item, label, or ``{query: {item: label}}``.
        ``ndcg``, ``dcg``, ``judged`` and ``tau`` take labels with fractions; other metrics refuse them.
    metrics
        Names like ``"ndcg@10"``.
    protocol
        ``trec`` (the default) or ``letor``.
    baseline
        The run to test the others against (default: the best one by the first metric; p-values are then a little too
        small, because the baseline was chosen after seeing the scores).
    missing
        ``skip`` leaves judged queries that a run lacks out of its means and tests, as trec_eval does without -c.
    seed
        Seed of the randomisation test.

    Returns
    -------
    RunsEvaluation
        ``means``, ``runs`` (for each run the values of every query, missing and unjudged queries), ``tests``,
        ``notes()`` and ``to_dict()``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> qrels = pa.table({"query": ["1", "1", "2"], "item": ["x", "y", "x"], "label": [1, 0, 2]})
    >>> bm25 = pa.table({"query": ["1", "1", "2"], "item": ["y", "x", "x"], "score": [9.0, 8.0, 7.0]})
    >>> dense = pa.table({"query": ["1"], "item": ["x"], "score": [0.5]})
    >>> result = evaluate_runs({"bm25": bm25, "dense": dense}, qrels, ["mrr", "recall@1"])
    >>> result.means
    {'bm25': {'mrr': 0.75, 'recall@1': 0.5}, 'dense': {'mrr': 0.5, 'recall@1': 0.5}}
    >>> result.notes()
    ['dense: judged queries missing from the run count as 0: 1 of 2 (2)']
    """
    parsed, counted_by = tuple(dict.fromkeys(parse_metrics(metrics))), check_protocol(protocol or "trec")
    named = runs if isinstance(runs, Mapping) else run_names(runs)
    if not named:
        raise UsageError("no runs to evaluate; give at least one")
    if baseline is not None and baseline not in named:
        raise unknown("baseline", baseline, named)
    if missing not in ("zero", "skip"):
        raise unknown("value of 'missing'", missing, ("zero", "skip"))
    judgements = index_judgements(as_labels(qrels, fractions=True), source=_source(qrels, "qrels"))
    if not len(judgements.labels):
        raise UsageError(f"{judgements.source} holds no judgements to evaluate against")
    evaluated: dict[str, JudgedRun] = {}
    for name, run in named.items():
        index = index_rankings(as_rankings(run), source=_source(run, name))
        evaluated[name] = evaluate_judged(
            index, judgements, parsed, protocol=counted_by, skip_missing=missing == "skip"
        )
    names = [str(metric) for metric in parsed]
    values = {name: run.evaluation.values for name, run in evaluated.items()}
    means = {name: run.evaluation.means[names[0]] for name, run in evaluated.items()} if names else {}
    reference = baseline or max(means, key=lambda name: means[name], default=next(iter(evaluated)))
    tests = paired_test_rows(values, names, reference, seed)
    return RunsEvaluation(evaluated, parsed, counted_by, reference, missing, tests)


def rbo(a: Any, b: Any, p: float = 0.9) -> pa.Table:
    """Rank-biased overlap of two rankings of every query: how alike they are, the top above all.

    Parameters
    ----------
    a
        A run of any kind that ``evaluate_runs`` takes: a file, a frame or table with the columns query, item, and rank
        or score, or ``{query: {item: score}}``.
    b
        The other ranking.
    p
        The probability that a reader goes on to the next rank, between 0 and 1.

    Returns
    -------
    pyarrow.Table
        Columns query and rbo, a row for each query of either ranking: 1 where both are the same, 0 where they have
        nothing in common or only one of them has the query (Webber, Moffat and Zobel 2010, extrapolated).

    Examples
    --------
    >>> import pyarrow as pa
    >>> a = pa.table({"query": ["q", "q"], "item": ["x", "y"], "rank": [1, 2]})
    >>> b = pa.table({"query": ["q", "q"], "item": ["x", "z"], "rank": [1, 2]})
    >>> round(rbo(a, b)["rbo"][0].as_py(), 4)
    0.55
    """
    return rank_overlap(as_rankings(a), as_rankings(b), p, sources=(_source(a, "a"), _source(b, "b")))


def _source(data: Any, name: str) -> str:
    """What errors call the data: their path, or a name."""
    return str(data) if isinstance(data, str | Path) else name


def run_names(files: Sequence[str | Path]) -> dict[str, str | Path]:
    """Files by name, without .gz; by their whole path where two have the same name."""
    from distagg.sources.trec import run_name  # late: files only

    short = [run_name(Path(file)) for file in files]
    named: dict[str, str | Path] = {}
    for name, file in zip(short, files, strict=True):
        key = name if short.count(name) == 1 else str(file)
        if key in named:
            raise UsageError(f"the run {file} is given twice")
        named[key] = file
    return named


def _some(queries: Sequence[str], shown: int = 5) -> str:
    return ", ".join(queries[:shown]) + (", ..." if len(queries) > shown else "")
