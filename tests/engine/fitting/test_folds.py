"""Folds: every labelled part is held out once, none is lost; who learns from which of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distagg.dataset import Dataset
from distagg.engine.fitting.fit import fit
from distagg.engine.fitting.folds import hold_outs, make_folds
from distagg.engine.fitting.search import fit_folds, search, variants
from distagg.engine.fitting.train import Goal, evaluate_candidates
from distagg.engine.runner import InlineRunner
from distagg.errors import UsageError
from distagg.models import model_named


def queries(dataset: Dataset) -> set[int]:
    return {int(p) for chunk in dataset.chunks(ids=False) for p in chunk.positions}


@pytest.mark.parametrize(("folds", "held"), [("letor5", False), ("6", False), ("6", True)])
def test_every_part_is_held_out_once(hostile: Dataset, folds: str, held: bool) -> None:
    dataset = Dataset.from_arrow(hostile.to_arrow()) if held else hostile
    for fold in make_folds(dataset, folds):
        ways = hold_outs(fold.train, fold.valid)
        assert ways[0] == (fold.train, fold.valid)
        assert len(ways) == (4 if folds == "letor5" else 5)
        labelled = queries(fold.train) | queries(fold.valid)
        assert not labelled & queries(fold.test)
        assert sorted(q for _, valid in ways for q in queries(valid)) == sorted(labelled)
        for train, valid in ways:
            assert queries(train) == labelled - queries(valid)


def test_unlike_datasets_are_left_as_they_are(hostile: Dataset) -> None:
    fold = make_folds(hostile, "5")[0]
    apart = Dataset.from_arrow(hostile.to_arrow())
    mirrored = replace(apart, held=tuple(replace(chunk, labels=chunk.labels[::-1].copy()) for chunk in apart.held))
    for train, valid in (
        (fold.train, None),
        (hostile, hostile),
        (fold.train, hostile),
        (fold.train, fold.train),
        (fold.train, hostile.select(fold=(7, {3}))),
        (fold.train, hostile.select(parts=[hostile.manifest.parts[0]])),
        (fold.train, make_folds(apart, "5")[0].valid),
        (make_folds(apart, "5")[0].train, make_folds(mirrored, "5")[0].valid),
        (fold.train, fold.valid.select(without=[hostile.experts[0]])),
    ):
        assert hold_outs(train, valid) == [(train, valid)]


UNION = [
    ("bestinput", {}),
    ("rrf", {"c": "auto"}),
    ("stagg_rrf", {"c": "auto"}),
    ("theta_sup_mpm", {}),
    ("cps", {"theta": "learn"}),
]


@pytest.mark.parametrize(("name", "settings"), UNION, ids=[name for name, _ in UNION])
def test_what_does_not_stop_early_learns_from_validation_queries_too(
    hostile: Dataset, name: str, settings: dict[str, str]
) -> None:
    fold, model = make_folds(hostile, "letor5")[0], model_named(name, settings)
    both = hostile.select(parts=sorted((fold.train.where.parts or set()) | (fold.valid.where.parts or set())))
    learned, expected = fit(model, fold.train, valid=fold.valid), fit(model, both)
    for key, value in expected.items():
        np.testing.assert_allclose(learned[key], value, rtol=1e-9)
    (pick,) = fit_folds([model], [fold], Goal())
    assert all(pick.params[key].tobytes() == value.tobytes() for key, value in learned.items())


def test_settings_are_chosen_on_queries_that_the_model_has_not_seen(hostile: Dataset) -> None:
    """And what is chosen then learns from them as well."""
    fold, models = make_folds(hostile, "letor5")[0], variants("theta_sup_mpm", {"scale": "plain,chance"})
    alone = [fit(model, fold.train) for model in models]
    values = [
        evaluate_candidates(m, [p], fold.valid, Goal(), InlineRunner())[0] for m, p in zip(models, alone, strict=True)
    ]
    assert search(models, fold.train, valid=fold.valid).tolist() == values
    (pick,) = fit_folds(models, [fold], Goal())
    assert pick.model == models[int(np.argmax(values))]
    expected = fit(pick.model, fold.train, valid=fold.valid)["expert_theta"]
    assert pick.params["expert_theta"].tobytes() == expected.tobytes()


def test_experts_of_validation_queries_are_matched_by_name(hostile: Dataset) -> None:
    fold = make_folds(hostile, "letor5")[0]
    apart = Dataset.from_arrow(fold.valid.to_arrow())  # its experts are in another order
    assert apart.experts != hostile.experts
    best, same = (fit(model_named("bestinput"), fold.train, valid=valid) for valid in (apart, fold.valid))
    assert np.argmax(best["expert_quality"]) == np.argmax(same["expert_quality"])
    with pytest.raises(UsageError, match="their experts differ"):
        fit(model_named("theta_sup_mpm"), fold.train, valid=apart)
