"""Weights of kinds of members, and rules tuned by a power: planted truth, shrinkage, seeds."""

from __future__ import annotations

import numpy as np
import pytest

from distagg.dataset import Dataset
from distagg.dataset.frames import hold_source
from distagg.engine.compare import evaluate_model
from distagg.engine.fitting import ensemble
from distagg.engine.fitting.fit import Goal, fit
from distagg.engine.fitting.folds import in_turn
from distagg.engine.fitting.stack import select
from distagg.models import Model, Params, model_named
from distagg.models.boosted.blend import Blend
from distagg.models.boosted.fusion import Fusion
from distagg.models.boosted.model import standardised
from distagg.sources.deep import DeepSource

GOAL = Goal("ndcg@10", "trec")


@pytest.fixture(scope="module")
def one_good() -> tuple[Dataset, Dataset]:
    """Runs of which one is good and the others nearly random: 15 labelled queries, and 15 to test on."""
    source = DeepSource(30, 150, 8, depth=30, random=0.0, seed=3)
    source.qualities = np.where(np.arange(8) == 5, 0.9, 0.05)
    dataset = hold_source(source)
    return dataset.select(fold=(2, {0})), dataset.select(fold=(2, {1}))


def value(model: Model, params: Params, dataset: Dataset) -> float:
    return float(np.nanmean(evaluate_model(model, params, dataset, ["ndcg@10"], protocol="trec")[1]))


def test_the_best_kind_is_found_and_noise_changes_nothing() -> None:
    draws = np.random.default_rng(1)
    usual = np.array([0.5, 0.5, 0.0])
    same = draws.random(200)
    noise = np.stack([same, same, same + 0.1 * draws.standard_normal(200)], axis=1)
    noise[:, 2] -= noise[:, 2].mean() - same.mean() + 0.02  # a kind that is worse
    assert select(usual, lambda weights: noise @ weights, np.random.default_rng(0)) == pytest.approx(usual, abs=0.15)
    better = noise + np.array([0.0, 0.0, 0.1])
    chosen = select(usual, lambda weights: better @ weights, np.random.default_rng(0))
    assert chosen[2] > 0.9
    assert chosen.sum() == pytest.approx(1.0)
    assert select(usual, lambda weights: np.zeros(0), np.random.default_rng(0)).tolist() == usual.tolist()


@pytest.mark.parametrize("rule", ["rrf", "combsum"])
def test_a_rule_gives_its_weight_to_the_good_expert(one_good: tuple[Dataset, Dataset], rule: str) -> None:
    train, test = one_good
    model = Fusion(rule=rule)
    params = fit(model, train, goal=GOAL)
    assert int(np.argmax(params["expert_weight"])) == 5
    assert value(model, params, test) > value(model_named(rule), {}, test) + 0.2
    best = model_named("bestinput")
    assert value(model, params, test) > value(best, fit(best, train, goal=GOAL), test) - 0.02
    settled = model.settled(params)
    again = model.as_params(settled, tuple(params["expert_weight"].tolist()))
    assert {key: array.tolist() for key, array in again.items()} == {key: a.tolist() for key, a in params.items()}


def test_experts_unseen_by_a_rule_are_ignored(one_good: tuple[Dataset, Dataset]) -> None:
    train, test = one_good
    params = fit(Fusion(), train, goal=GOAL)
    (ref,) = test.plan()
    chunk = ref.load()
    unknown, none = params["expert_weight"].copy(), params["expert_weight"].copy()
    unknown[2], none[2] = Fusion.unseen, 0.0
    scores = [Fusion().score(chunk, {**params, "expert_weight": weight}) for weight in (unknown, none)]
    assert scores[0].tobytes() == scores[1].tobytes()


def test_a_blend_does_not_lose_to_its_members_where_one_expert_is_best(one_good: tuple[Dataset, Dataset]) -> None:
    train, test = one_good
    model = Blend(crf=5, lambdamart=0, lambdarank=5)
    params = fit(model, train, goal=GOAL)
    weights = [float(params[f"weight of {kind}"][0]) for kind in model.kinds]
    assert min(weights) >= 0.0
    assert sum(weights) == pytest.approx(1.0, abs=1e-3)
    members = [model_named("bestinput"), Fusion(), Fusion(rule="combsum"), model_named("ssra")]
    best = max(value(member, fit(member, train, goal=GOAL), test) for member in members)
    assert value(model, params, test) > best - 0.02


def only_ssra(**given: bool) -> Blend:
    return Blend(crf=0, lambdamart=0, lambdarank=0, rrf=False, combsum=False, ssra=True, **given)


def test_a_blend_of_ssra_alone_is_ssra_and_unseen_experts_are_ignored(one_good: tuple[Dataset, Dataset]) -> None:
    train, test = one_good
    model, plain = only_ssra(bestinput=False), model_named("ssra")
    params, alone = fit(model, train, goal=GOAL), fit(plain, train, goal=GOAL)
    (ref,) = test.plan()
    chunk = ref.load()
    unknown = alone["expert_weight"].copy()
    unknown[2] = Blend.unseen
    for weight in (alone["expert_weight"], unknown):
        found = model.score(chunk, {**params, "expert_weight of ssra 1": weight})
        known = np.where(np.isfinite(weight), weight, 0.0)
        expected = standardised(chunk, plain.score(chunk, {"expert_weight": known}))
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_with_too_many_experts_for_ssra_the_others_blend(
    one_good: tuple[Dataset, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = one_good
    monkeypatch.setattr(ensemble, "MOST_EXPERTS", train.manifest.experts - 1)
    model = only_ssra(bestinput=True)
    params = fit(model, train, goal=GOAL)
    assert not any("ssra" in name for name in params)
    best = model_named("bestinput")
    assert value(model, params, test) == value(best, fit(best, train, goal=GOAL), test)


def test_parts_are_held_out_in_turn_of_a_selection_too(one_good: tuple[Dataset, Dataset]) -> None:
    def queries(dataset: Dataset) -> set[int]:
        return {int(at) for chunk in dataset.chunks(ids=False) for at in chunk.positions}

    train = one_good[0]
    parts = in_turn(train)
    assert sorted(at for _, part in parts for at in queries(part)) == sorted(queries(train))
    for rest, part in parts:
        assert queries(rest) == queries(train) - queries(part)
