"""lambdarank: planted truth, hard data, strangers, the same bits anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from strategies import Query, build_chunk, labelled

from distagg import rank
from distagg.dataset import Dataset
from distagg.engine import Fitted, load_model, save_model
from distagg.engine.compare import evaluate_model
from distagg.engine.dask import DaskRunner
from distagg.engine.fitting.fit import fit
from distagg.errors import UsageError
from distagg.models import model_named
from distagg.models.scorers.scorer import LambdaRank
from distagg.models.trained import MODES
from distagg.types import NO_LABEL

RATES = {"serial": 0.01, "sum": 0.01, "average": 0.01, "gradient": 0.05}


def value(model, params, dataset: Dataset) -> float:
    return float(np.nanmean(evaluate_model(model, params, dataset, ["ndcg@5"])[1]))


@pytest.mark.parametrize(
    "settings",
    [{"mode": mode, "rate": RATES[mode]} for mode in MODES]
    + [
        {"hidden": 8, "rate": 0.01},
        {"hidden": 8, "layers": 2, "rate": 0.01},
        {"objective": "map"},
        {"objective": "err", "rate": 0.01},
        {"objective": "ranknet"},
        {"features": "borda"},
    ],
    ids=str,
)
def test_experts_that_turn_things_round_are_used_turned_back(hostile: Dataset, settings: dict) -> None:
    train, test = hostile.select(fold=(3, {0, 1})), hostile.select(fold=(3, {2}))
    model = LambdaRank(rounds=15, **settings)
    params = fit(model, train)
    assert value(model, params, test) > value(model_named("rrf"), {}, test) + 0.1
    lists = [build_chunk([Query(6, {e: {0: 1.0, 1: 2.0, 2: 3.0}})], n_experts=25) for e in range(25)]
    scores = np.array([model.score(chunk, params) for chunk in lists])
    effect = scores[:, 0] - scores[:, 5]  # of being the first of the list, over not being in it
    kinds = np.array([name.split("-")[0] for name in hostile.experts])
    assert effect[kinds == "good"].mean() > 0.0 > effect[kinds == "adversarial"].mean()
    apart = effect[kinds == "good"][:, None] > effect[kinds == "adversarial"][None, :]
    assert apart.mean() > 0.9


def test_combined_features_know_the_consensus_only(hostile: Dataset) -> None:
    model = LambdaRank(rounds=5, rate=0.01)
    combined = LambdaRank(rounds=5, rate=0.01, experts="combined")
    params = fit(combined, hostile)
    assert params["weight"].shape == (1, 4, 1)
    assert value(combined, params, hostile) < value(model, fit(model, hostile), hostile) - 0.1


@pytest.mark.cluster
def test_the_same_bits_on_workers(hostile: Dataset, clusters: Callable[[int], DaskRunner]) -> None:
    for mode in MODES:
        model = LambdaRank(mode=mode, rounds=3, hidden=2)
        here, there = fit(model, hostile), fit(model, hostile, runner=clusters(2))
        for key in here:
            np.testing.assert_array_equal(here[key], there[key])


@pytest.mark.parametrize("labels", [[1, 1, 1], [0, 0], [1], [None, 1]], ids=str)
def test_data_that_teach_nothing_are_refused(labels: list[int | None]) -> None:
    with pytest.raises(UsageError, match="two items with different labels"):
        fit(LambdaRank(), labelled(labels))


def test_whole_numbers_are_asked_for() -> None:
    with pytest.raises(UsageError, match=r"hidden of lambdarank: found 1\.5, expected a whole number"):
        LambdaRank(hidden=1.5)


def test_unlabelled_data_are_refused() -> None:
    with pytest.raises(UsageError, match="learns from labels"):
        fit(LambdaRank(), labelled([None, None]))


def test_validation_with_other_experts() -> None:
    with pytest.raises(UsageError, match="none of the dataset's experts"):
        fit(LambdaRank(), labelled([1, 0]), valid=labelled([1, 0], expert="b"))
    params = fit(LambdaRank(experts="combined", rounds=2), labelled([1, 0]), valid=labelled([1, 0], expert="b"))
    assert params["curve"][-1] == 1.0


@pytest.mark.parametrize("hidden", [0, 3])
def test_strangers_are_silent_and_the_missing_have_their_bias(hidden: int) -> None:
    model = LambdaRank(hidden=hidden)
    made = model.start(2)
    known = np.random.default_rng(0).normal(size=made["expert_weight"].shape)
    params = {**made, "expert_weight": known}
    query = {0: {0: 1.0, 1: 2.0, 2: 3.0}, 1: {0: 2.0, 1: 1.0}}
    without = model.score(build_chunk([Query(3, query)], n_experts=2), params)
    strange = {**params, "expert_weight": np.concatenate([known, np.full((1, *known.shape[1:]), -np.inf)])}
    chunk = build_chunk([Query(3, {**query, 2: {2: 1.0, 0: 5.0}})], n_experts=3)
    np.testing.assert_array_equal(model.score(chunk, strange), without)
    if not hidden:  # item 2 is missing from expert 1: with the bias raised by 1 it stands 1 higher beside the others
        raised = {**params, "expert_weight": known.copy()}
        raised["expert_weight"][1, -1, 0] += 1.0
        change = model.score(build_chunk([Query(3, query)], n_experts=2), raised) - without
        np.testing.assert_allclose(change - change[0], [0.0, 0.0, 1.0], atol=1e-12)


def test_items_in_no_list_and_unlabelled_items() -> None:
    data = Dataset.from_arrow(
        pa.table({"expert": ["a"] * 3, "item": ["x", "y", "z"], "rank": [1, 2, 3]}),
        labels=pa.table({"item": ["x", "y", "w"], "label": pa.array([1, 0, 0], pa.int32())}),
    )
    params = fit(LambdaRank(rounds=5, rate=0.1), data)
    ranking = rank(Fitted(LambdaRank(), params, data.experts), data)
    assert np.isfinite(ranking["score"].to_numpy()).all()
    assert ranking["item"][0].as_py() == "x"


def test_weights_too_large_are_said() -> None:
    with pytest.warns(UserWarning, match="lower the rate"), np.errstate(all="ignore"):
        fit(LambdaRank(rate=1e308, hidden=2, rounds=3), labelled([1, 0, 2]))


def test_saved_and_read_back(hostile: Dataset, tmp_path: Path) -> None:
    model = LambdaRank(rounds=2, hidden=2, pairs="all")
    fitted = Fitted(model, fit(model, hostile), hostile.experts)
    save_model(tmp_path / "model", fitted)
    again = load_model(tmp_path / "model")
    assert again.model == model
    assert rank(again, hostile).equals(rank(fitted, hostile))


@pytest.mark.parametrize("name", ["lambdarank", "stagg"])
def test_large_queries_teach_by_their_labelled_items_and_their_pool(name: str) -> None:
    draws = np.random.default_rng(1)
    lists = {e: {int(i): n + 1.0 for n, i in enumerate(draws.permutation(40)[:30])} for e in range(5)}
    labels = np.full(40, NO_LABEL)
    labels[draws.permutation(40)[:12]] = draws.integers(0, 3, 12)
    labels[:2] = 0, 2
    chunk = replace(build_chunk([Query(40, lists)], n_experts=5), labels=labels.astype(np.int32))

    def learned(pool: int) -> np.ndarray:
        model = model_named(name, {"pool": pool, "mode": "serial"})
        return model.learn(chunk, model.first(5, 2.0))[0]["expert_weight"]

    assert learned(0).tobytes() == learned(40).tobytes()
    assert learned(0).tobytes() != learned(8).tobytes()
    taught, rows, _ = model_named(name, {"pool": 8})._taught(chunk)  # type: ignore[attr-defined]
    points = np.bincount(chunk.entry_item, 1.0 / (60.0 + chunk.entry_rank), 40)
    kept = np.union1d(np.flatnonzero(labels != NO_LABEL), np.argsort(-points, kind="stable")[:8])
    known = np.where((labels == NO_LABEL) & (name == "stagg"), 0, labels)  # unjudged=zero
    assert taught.labels.tolist() == known[kept].tolist()
    assert rows.offsets.tolist() == [0, np.isin(chunk.entry_item, kept).sum()]
