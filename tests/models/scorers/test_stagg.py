"""stagg, and rankagg that is lambdarank: planted truth, hard data, strangers, the same bits anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from strategies import Query, build_chunk, labelled

from distagg.cli.evaluating import all_models
from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine import load_model
from distagg.engine.compare import evaluate_model
from distagg.engine.dask import DaskRunner
from distagg.engine.fitting.fit import fit
from distagg.errors import UsageError
from distagg.models import Model, Params, is_model, model_named
from distagg.models.scorers.scorer import LambdaRank, Stagg
from distagg.models.trained import MODES
from distagg.storage.sealed import sealed


def value(model: Model, params: Params, dataset: Dataset) -> float:
    return float(np.nanmean(evaluate_model(model, params, dataset, ["ndcg@5"])[1]))


@pytest.mark.parametrize(
    "settings",
    [{"mode": mode} for mode in MODES]
    + [
        {"objective": "err"},
        {"objective": "rbp"},
        {"features": "borda"},
        {"ranks": "normal"},
        {"hidden": 4, "layers": 2},
    ],
    ids=str,
)
def test_experts_that_turn_things_round_are_used_turned_back(hostile: Dataset, settings: dict) -> None:
    train, test = hostile.select(fold=(3, {0, 1})), hostile.select(fold=(3, {2}))
    model = Stagg(rounds=25, **settings)
    params = fit(model, train)
    assert value(model, params, test) > value(model_named("rrf"), {}, test) + 0.1
    lists = [build_chunk([Query(6, {e: {0: 1.0, 1: 2.0, 2: 3.0}})], n_experts=25) for e in range(25)]
    scores = np.array([model.score(chunk, params) for chunk in lists])
    effect = scores[:, 0] - scores[:, 5]  # of being the first of the list, over not being in it
    kinds = np.array([name.split("-")[0] for name in hostile.experts])
    apart = effect[kinds == "good"][:, None] > effect[kinds == "adversarial"][None, :]
    assert apart.mean() > 0.9


def test_sigma_is_a_matter_of_scale() -> None:
    """rate / sigma^2 decides: the same ranking, the scores scaled."""
    lists = {0: {0: 1.0, 1: 2.0, 2: 3.0}, 1: {2: 1.0, 3: 2.0}}
    chunk = build_chunk([Query(4, lists, [2, 0, 1, 0])])
    reached = []
    for sigma in (1.0, 0.1):
        model = Stagg(sigma=sigma, rate=0.5 * sigma**2)
        state = model.first(2, 2.0)
        for _ in range(5):
            state = replace(state, weights=model.learn(chunk, state)[0])
        reached.append(state.weights["expert_weight"] / sigma)
    assert np.abs(reached[0]).max() > 0.01
    np.testing.assert_allclose(reached[0], reached[1], rtol=1e-9)


def test_rankagg_is_an_alias_of_lambdarank(hostile: Dataset) -> None:
    assert model_named("rankagg", {"rounds": 3}) == LambdaRank(rounds=3)
    assert is_model("rankagg")
    assert "rankagg" not in all_models(hostile, "letor5")
    model = model_named("rankagg", {"objective": "rbp", "rounds": 15})
    assert value(model, fit(model, hostile), hostile) > value(model_named("rrf"), {}, hostile) + 0.1


def test_the_command_line_and_saved_models_take_the_alias(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "rankagg"]) == 0
    assert capsys.readouterr().out.startswith("rankagg: alias of lambdarank\nlambdarank: ")
    assert main(["models"]) == 0
    assert "rankagg: alias of lambdarank" in capsys.readouterr().out
    saved = tmp_path / "model"
    assert main(["fit", "rankagg", str(planted), "-p", "rounds=1", "-o", str(saved)]) == 0
    manifest = json.loads((saved / "manifest.json").read_text(encoding="utf-8"))
    (saved / "manifest.json").write_bytes(sealed(manifest | {"model": "rankagg"}))
    assert load_model(saved).model == LambdaRank(rounds=1)  # as one that was saved under its own name


@pytest.mark.cluster
def test_the_same_bits_on_workers(hostile: Dataset, clusters: Callable[[int], DaskRunner]) -> None:
    for mode in MODES:
        model = Stagg(mode=mode, rounds=3)
        here, there = fit(model, hostile), fit(model, hostile, runner=clusters(2))
        for key in here:
            np.testing.assert_array_equal(here[key], there[key])


@pytest.mark.parametrize("labels", [[1, 1, 1], [0, 0], [1], [None, 1], [None, None]], ids=str)
def test_data_that_teach_nothing_are_refused(labels: list[int | None]) -> None:
    said = "learns from labels" if labels == [None, None] else "two items with different labels"
    with pytest.raises(UsageError, match=said):
        fit(Stagg(unjudged="ignore"), labelled(labels))


def test_items_without_a_label_teach_as_irrelevant_ones() -> None:
    assert np.isfinite(fit(Stagg(), labelled([None, 1]))["expert_weight"]).all()


def test_wrong_use_is_refused() -> None:
    with pytest.raises(UsageError, match="none of the dataset's experts"):
        fit(Stagg(), labelled([1, 0]), valid=labelled([1, 0], expert="b"))
    with pytest.raises(UsageError, match=r"rank of stagg: found 1\.5, expected a whole number"):
        model_named("stagg", {"rank": 1.5})
    with pytest.raises(UsageError, match="expected one of ndcg, err, rbp"):
        model_named("stagg", {"objective": "map"})
    with pytest.raises(UsageError, match="expected a number above 0"):
        model_named("stagg", {"sigma": "0"})


def test_strangers_are_silent() -> None:
    model = Stagg()
    known = np.random.default_rng(0).normal(size=model.start(2)["expert_weight"].shape)
    query = {0: {0: 1.0, 1: 2.0, 2: 3.0}, 1: {0: 2.0, 1: 1.0}}
    without = model.score(build_chunk([Query(3, query)], n_experts=2), {"expert_weight": known})
    strange = np.concatenate([known, np.full((1, *known.shape[1:]), -np.inf)])
    chunk = build_chunk([Query(3, {**query, 2: {2: 1.0, 0: 5.0}})], n_experts=3)
    np.testing.assert_array_equal(model.score(chunk, {"expert_weight": strange}), without)
