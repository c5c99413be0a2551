"""Tuning: values are those of evaluation, planted qualities are found, few labels change nothing."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from small_jobs import write_small

from distagg.dataset import Dataset
from distagg.engine import load_model, save_model
from distagg.engine.compare import compare, evaluate_model
from distagg.engine.fitting.fit import fit
from distagg.engine.fitting.folds import make_folds
from distagg.engine.fitting.learner import Goal
from distagg.engine.fitting.tune import STAGES, Tuned, tune
from distagg.engine.fitting.tune.climb import WEIGHTS, climb, climb_all
from distagg.engine.fitting.tune.judge import Ask, Folds, Judge
from distagg.engine.rank import solve
from distagg.errors import UsageError
from distagg.metrics import mean_over_queries
from distagg.models import Model, model_named

QUALITY = {"good": 0.3, "fair": 0.8, "poor": 2.0, "noise": 30.0}  # deviations of what each expert sees of the truth


def lists_of(queries: int, seed: int, deviations: dict[str, float] = QUALITY, items: int = 12) -> Dataset:
    """Experts that see the relevance of items with more or less noise, and list the best two thirds."""
    random = np.random.default_rng(seed)
    rows: dict[str, list[object]] = {name: [] for name in ("query", "expert", "item", "score")}
    labels: dict[str, list[object]] = {name: [] for name in ("query", "item", "label")}
    for q in range(queries):
        truth = random.choice([0.0, 0.0, 0.0, 1.0, 2.0], items)
        for i, label in enumerate(truth):
            labels["query"].append(f"q{q:03}"), labels["item"].append(f"d{i}"), labels["label"].append(int(label))
        for expert, deviation in deviations.items():
            seen = truth + random.normal(0.0, deviation, items)
            for i in np.argsort(-seen)[: 2 * items // 3]:
                rows["query"].append(f"q{q:03}"), rows["expert"].append(expert)
                rows["item"].append(f"d{i}"), rows["score"].append(float(seen[i]))
    return Dataset.from_arrow(pa.table(rows), judgements=pa.table(labels))


@pytest.fixture(scope="module")
def planted_lists() -> Dataset:
    return lists_of(60, seed=1)


@pytest.fixture(scope="module")
def tuned(planted_lists: Dataset) -> Tuned:
    return tune(planted_lists, metric="ndcg@5", metrics=["map"])


@pytest.mark.parametrize("metric", ["ndcg@5", "map", "bpref"])
@pytest.mark.parametrize(
    "model",
    [
        model_named("rrf", {"c": 5.0, "depth": 4}),
        model_named("combsum", {"norm": "zmuv"}),
        model_named("combsum", {"unlisted": "ignore"}),
        model_named("combmnz"),
    ],
    ids=["rrf", "zmuv", "ignore", "combmnz"],
)
def test_a_line_of_weights_is_what_evaluation_gives(planted_lists: Dataset, model: Model, metric: str) -> None:
    experts = planted_lists.experts
    judge = Judge(planted_lists, Folds(4), Goal(metric, "trec"))
    ask = Ask(model, (0.5, 2.0, 1.0, 0.1), expert=1, values=WEIGHTS)
    (sums,) = judge.sums([ask])
    for row, found in zip(ask.rows(), sums, strict=True):
        weighted = dataclasses.replace(model, weights=dict(zip(experts, row, strict=True)))  # type: ignore[arg-type]
        at, values = evaluate_model(weighted, weighted.resolved(experts), planted_lists, [metric])
        known = ~np.isnan(values[:, 0])
        for fold in range(4):
            here = known & (at % 4 == fold)
            assert found[:, fold] == pytest.approx([values[here, 0].sum(), here.sum()], abs=1e-12)
    assert judge.judged == len(WEIGHTS)
    judge.sums([ask])
    assert judge.judged == len(WEIGHTS)  # what is known is not judged again


def test_two_weights_are_the_best_of_all_on_the_ladder() -> None:
    """With two lists only the ratio counts, so a sweep is exhaustive."""
    data = lists_of(40, seed=3, deviations={"a": 0.5, "b": 1.5})
    judge = Judge(data, Folds(3), Goal("map", "trec"))
    (found,) = climb_all([climb(model_named("rrf"), {}, 2, range(3))], judge.sums)
    best = 0.0
    for first in WEIGHTS:
        for second in WEIGHTS:
            if first or second:
                model = model_named("rrf", {"weights": {"a": first, "b": second}})
                values = evaluate_model(model, model.resolved(data.experts), data, ["map"])[1]
                best = max(best, float(mean_over_queries(values)[0]))
    assert found.weights.value == pytest.approx(best, abs=1e-12)
    assert found.weights.weights[0] > found.weights.weights[1]
    assert found.plain.value <= found.settings.value <= found.weights.value


def test_planted_qualities_come_out_in_order(tuned: Tuned, planted_lists: Dataset) -> None:
    assert tuned.final["rrf"]["stage"] in STAGES[2:]
    weight = dict(zip(tuned.experts, tuned.fitted.params["expert_weight"], strict=True))
    assert weight["good"] > weight["fair"] > max(weight["poor"], weight["noise"])  # these two count for nothing
    rows = {row["rule"]: row for row in tuned.table}
    assert list(rows) == ["rrf", "combsum", "rrf tuned", "combsum tuned"]
    assert rows["rrf"]["gain"] == 0.0
    for name in ("rrf tuned", "combsum tuned"):
        assert rows[name]["low"] > 0.02  # points that no luck explains
        assert rows[name]["low"] < rows[name]["gain"] < rows[name]["high"]
        assert rows[name]["map"] > rows["rrf"]["map"]
    at, values = evaluate_model(model_named("rrf"), {}, planted_lists, ["ndcg@5"])
    assert rows["rrf"]["ndcg@5"] == pytest.approx(np.mean([values[at % 5 == k].mean() for k in range(5)]))


def test_the_winner_is_saved_and_ranks_by_itself(tuned: Tuned, planted_lists: Dataset, tmp_path: Path) -> None:
    save_model(tmp_path / "model", tuned.fitted)
    again = load_model(tmp_path / "model")
    assert again.model == tuned.model
    params = again.params_on(planted_lists)
    expected = solve(tuned.model, tuned.model.resolved(planted_lists.experts), planted_lists).ranking
    assert solve(again.model, params, planted_lists).ranking.equals(expected)
    value, _ = tuned.export("json")
    assert {row["expert"] for row in value["lists"]} == set(QUALITY)


def test_few_labels_leave_weights_equal() -> None:
    """Experts of one quality: weights that a search finds on six queries are luck, which the choice must see."""
    alike = dict.fromkeys("abcd", 1.0)
    fresh = lists_of(200, seed=99, deviations=alike)

    def value(model: Model) -> float:
        return float(evaluate_model(model, model.resolved(fresh.experts), fresh, ["ndcg@5"])[1].mean())

    plain = value(model_named("rrf"))
    guarded, bare = [], []
    for seed in range(6):
        data = lists_of(6, seed, alike)
        result = tune(data, ["rrf"], folds=3, metric="ndcg@5")
        assert result.final["rrf"]["stage"] in STAGES[:2]
        guarded.append(value(result.model) - plain)
        judge = Judge(data, Folds(3), Goal("ndcg@5", "trec"))
        (found,) = climb_all([climb(model_named("rrf"), {}, 4, range(3))], judge.sums)
        weights = dict(zip(data.experts, found.weights.weights, strict=True))
        bare.append(value(model_named("rrf", {"weights": weights})) - plain)
    assert min(guarded) >= 0.0
    assert min(bare) < -0.02


@pytest.mark.parametrize("folds", ["letor5", "4"])
def test_folds_are_those_of_comparisons(folds: str, tmp_path: Path) -> None:
    data = Dataset.open(write_small(tmp_path / "data"))
    parts = tuple(sorted(data.manifest.parts)) if folds == "letor5" else ()
    made = make_folds(data, folds)
    judge = Judge(data, Folds(len(made), parts), Goal("map", data.manifest.protocol))
    _, fold = judge.each_query([(model_named("rrf"), {})], ["map"])
    tested = {frozenset(np.flatnonzero(fold == k).tolist()) for k in range(len(made))}
    expected = {frozenset(int(p) for ref in one.test.plan() for p in ref.load().positions) for one in made}
    assert tested == expected
    result = tune(data, ["rrf"], folds=folds, metric="map", beside=["borda"])
    means = compare(data, ["rrf", "borda"], folds=folds, metrics=["map"])["means"]
    found = {row["rule"]: row["map"] for row in result.table}
    assert {name: found[name] for name in means} == {name: pytest.approx(row["map"]) for name, row in means.items()}


def test_queries_without_labels_do_not_count(planted_lists: Dataset, tuned: Tuned) -> None:
    assert tuned.queries == planted_lists.manifest.queries
    assert tuned.judged > 500


def test_only_what_a_product_can_compute_is_tried(planted_lists: Dataset) -> None:
    result = tune(planted_lists, ["combsum"], folds=3, metric="ndcg@5", product="vespa")
    assert {row.get("norm", "auto") for row in result.folds} == {"minmax"}
    value, _ = result.export("vespa")
    assert any("normalize_linear(list_good)" in line for line in value["schema"])
    result = tune(planted_lists, ["combsum"], folds=3, metric="ndcg@5", product="qdrant")
    value, _ = result.export("qdrant")
    assert value["prefetch"][0]["query"] == {"fusion": "dbsf"}


def test_an_export_says_that_the_lists_had_no_scores(tuned: Tuned, planted: Path) -> None:
    assert not any("no scores" in note for note in tuned.export("json").notes)
    ranks = tune(Dataset.open(planted), ["combsum"], folds=3, metric="ndcg@5")
    assert any("the lists have no scores" in note for note in ranks.export("json").notes)
    assert not any("no scores" in note for note in tune(Dataset.open(planted), ["rrf"], folds=3).export("json").notes)


@pytest.mark.parametrize("settings", [{}, {"c": "auto"}], ids=["c=60", "c=auto"])
def test_weights_auto_are_found_by_the_same_search(planted_lists: Dataset, settings: dict[str, str]) -> None:
    model = model_named("rrf", {"weights": "auto", **settings})
    params = fit(model, planted_lists, goal=Goal("ndcg@5"))
    weight = dict(zip(planted_lists.experts, params["expert_weight"], strict=True))
    assert weight["good"] > max(weight["fair"], weight["poor"], weight["noise"])
    plain = replace(model, weights="", c=float(params.get("c", 60.0)))  # type: ignore[call-arg]
    judge = Judge(planted_lists, Folds(1), Goal("ndcg@5", "trec"))
    (found,) = climb_all([climb(plain, {}, 4, [0])], judge.sums)
    assert params["expert_weight"].tolist() == list(found.weights.weights)


def test_weights_auto_match_the_experts_of_validation_queries_by_name(planted_lists: Dataset) -> None:
    model = model_named("rrf", {"weights": "auto"})
    other = {"noise": 0.2, "new": 1.0, "good": 30.0}  # where the noise is good and the good is noise
    params = fit(model, planted_lists, valid=lists_of(300, seed=5, deviations=other), goal=Goal("ndcg@5"))
    weight = dict(zip(planted_lists.experts, params["expert_weight"], strict=True))
    assert weight["noise"] > weight["good"]


def test_given_bounds_stay(planted_lists: Dataset) -> None:
    rule = model_named("combsum", {"bounds": "good:-1:3,fair:-2:4"})
    result = tune(planted_lists, [rule], folds=3, metric="ndcg@5")
    assert result.model.bounds == rule.bounds  # type: ignore[attr-defined]
    assert result.table[1]["gain"] > 0.0
    value, _ = result.export("json")
    assert [row["bounds"] for row in value["lists"] if "bounds" in row] == [[-1.0, 3.0], [-2.0, 4.0]]


def test_somebody_weighs_something() -> None:
    """An expert that is worse than the order of ties: without any weight there would be no rule."""
    labels = [0, 0, 0, 1, 1, 2]
    queries, items = [f"q{q}" for q in range(9) for _ in labels], [f"d{i}" for i in range(len(labels))] * 9
    lists = {"query": queries, "expert": ["bad"] * len(items), "item": items, "rank": [1, 2, 3, 4, 5, 6] * 9}
    judged = {"query": queries, "item": items, "label": labels * 9}
    data = Dataset.from_arrow(pa.table(lists), judgements=pa.table(judged))
    judge, rule = Judge(data, Folds(1), Goal("ndcg@3", "trec")), model_named("rrf")
    nothing, something = judge.sums([Ask(rule, (0.0,), 0, (0.0, 1.0))])[0]
    assert nothing[0, 0] > something[0, 0]
    assert tune(data, ["rrf"], folds=3, metric="ndcg@3").model == rule
    (found,) = climb_all([climb(rule, {}, 1, [0])], judge.sums)
    assert found.weights.weights == (1.0,)


def test_refusals(planted_lists: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="median takes no weights"):
        tune(planted_lists, ["median"])
    with pytest.raises(UsageError, match="chooses a setting on labels itself"):
        tune(planted_lists, [model_named("rrf", {"weights": "auto"})])
    with pytest.raises(UsageError, match="rrf is named 2 times"):
        tune(planted_lists, ["rrf"], beside=["rrf"])
    with pytest.raises(UsageError, match="at least 3"):
        tune(planted_lists, folds=2)
    with pytest.raises(UsageError, match="unknown product"):
        tune(planted_lists, product="solr")
    unlabelled = dataclasses.replace(planted_lists, manifest=dataclasses.replace(planted_lists.manifest, labels={}))
    with pytest.raises(UsageError, match="no labels to tune on"):
        tune(unlabelled)
