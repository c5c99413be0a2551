"""Choosing among settings: which are tried, which are taken, the same on any number of workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine.compare import compare, evaluate_model
from distagg.engine.dask import DaskRunner
from distagg.engine.fitting.fit import fit
from distagg.engine.fitting.folds import make_folds
from distagg.engine.fitting.search import Trial, differing, fit_each, fit_folds, search, variants
from distagg.engine.fitting.train import Goal
from distagg.engine.saved import load_model
from distagg.errors import UsageError
from distagg.models import model_named
from distagg.models.crf.model import Crf
from distagg.models.positional.model import Rrf


@pytest.fixture
def cluster(clusters: Callable[[int], DaskRunner]) -> DaskRunner:
    return clusters(2)


def test_a_grid_is_every_combination_once():
    models = variants("crf", {"rate": "1,2", "pairs": "log,binary,log", "seed": 3})
    assert [(m.rate, m.pairs, m.seed) for m in models] == [
        (1.0, "log", 3),
        (1.0, "binary", 3),
        (2.0, "log", 3),
        (2.0, "binary", 3),
    ]
    assert differing(models) == [{"pairs": m.pairs, "rate": m.rate} for m in models]
    assert variants("rrf", {}) == [Rrf()]
    assert variants("rrf", {"c": [10, 20.5]}) == [Rrf(c=10), Rrf(c=20.5)]


def test_random_settings_are_of_the_grid_and_differ():
    grid = variants("cps", {"prior": "1,2,3", "rounds": "2,3,4"})
    drawn = variants("cps", {"prior": "1,2,3", "rounds": "2,3,4"}, tries=4, seed=5)
    assert len(drawn) == 4
    assert set(drawn) < set(grid)
    assert drawn == variants("cps", {"prior": "1,2,3", "rounds": "2,3,4"}, tries=4, seed=5)
    assert drawn != variants("cps", {"prior": "1,2,3", "rounds": "2,3,4"}, tries=4, seed=6)
    assert set(variants("cps", {"prior": "1,2,3", "rounds": "2,3,4"}, tries=50)) == set(grid)


def test_ranges_are_drawn_evenly_by_magnitude():
    rates = np.array([m.rate for m in variants("crf", {"rate": "0.01..100"}, tries=400)])
    assert rates.min() >= 0.01
    assert rates.max() <= 100.0
    assert abs(np.log10(rates).mean()) < 0.2
    assert 0.4 < (rates < 1.0).mean() < 0.6
    samples = {m.sample for m in variants("crf", {"sample": "2..12"}, tries=200)}
    assert samples == set(range(2, 13))
    assert all(isinstance(sample, int) for sample in samples)
    assert {m.reciprocal > 1 for m in variants("crf", {"reciprocal": "0..2"}, tries=20)} == {True, False}


@pytest.mark.parametrize(
    ("settings", "tries", "found"),
    [
        ({"rate": "1..2"}, None, "--tries"),
        ({"rate": "1,2"}, 0, "--tries: found 0"),
        ({"rate": "2..1"}, 3, "low below high"),
        ({"rate": "a..b"}, 3, "two numbers"),
        ({"rate": "1,x"}, None, "found 'x'"),
        ({"rat": "1,2"}, None, "rate"),
        ({"rate": ",".join(map(str, range(1, 102))), "rounds": ",".join(map(str, range(1, 102)))}, None, "10,201"),
    ],
)
def test_settings_that_cannot_be_tried_are_refused(settings, tries, found):
    with pytest.raises(UsageError, match=found):
        variants("crf", settings, tries=tries)


def test_each_fold_takes_what_does_best_on_its_validation_queries(planted: Path):
    dataset = Dataset.open(planted)
    models, folds, goal = variants("rrf", {"c": "1,10,1000"}), make_folds(dataset, "3"), Goal("ndcg@5")
    picks = fit_folds(models, folds, goal)
    for fold, pick in zip(folds, picks, strict=True):
        values = [evaluate_model(m, {}, fold.valid, ["ndcg@5"])[1].mean() for m in models]
        assert pick.model == models[int(np.argmax(values))]
        assert pick.settings == {"c": pick.model.c}
    told = compare(dataset, ["rrf"], settings={"rrf": {"c": "1,10,1000"}}, folds="3", goal="ndcg@5")
    assert told["chosen"]["rrf"] == [{"fold": f.name, "c": p.model.c} for f, p in zip(folds, picks, strict=True)]
    at, value = evaluate_model(picks[1].model, {}, folds[1].test, ["ndcg@5"])
    assert np.array(told["per_query"]["rrf"]["ndcg@5"])[at].tolist() == value[:, 0].tolist()


def test_search_is_the_mean_over_folds(planted: Path):
    dataset = Dataset.open(planted)
    models = variants("rrf", {"c": "1,100"})
    values = search(models, dataset, folds="4", goal=Goal("map"))
    expected = [
        np.mean([evaluate_model(m, {}, fold.valid, ["map"])[1].mean() for fold in make_folds(dataset, "4")])
        for m in models
    ]
    assert values == pytest.approx(expected, abs=1e-14)
    for wrong in ({}, {"valid": dataset, "folds": "4"}):
        with pytest.raises(UsageError, match="--valid or --folds"):
            search(models, dataset, **wrong)


@pytest.mark.cluster
def test_fits_side_by_side_have_the_same_bits(planted: Path, cluster: DaskRunner):
    dataset = Dataset.open(planted)
    fold = make_folds(dataset, "3")[0]
    models = [Crf(rounds=3, seed=s) for s in range(3)] + [Crf(rounds=3, mode="average"), model_named("bestinput")]
    trials = [Trial(model, fold.train, fold.valid, Goal()) for model in models]
    alone = [fit(t.model, t.train, valid=t.valid, goal=t.goal) for t in trials]
    done: list[int] = []
    for found, expected in zip(fit_each(trials, cluster, done.append), alone, strict=True):
        assert {k: v.tobytes() for k, v in found.items()} == {k: v.tobytes() for k, v in expected.items()}
    assert sum(done) == len(trials)


@pytest.mark.cluster
def test_an_error_of_a_fit_arrives_as_it_is(planted: Path, cluster: DaskRunner):
    lists = pa.table({"query": ["q"] * 2, "expert": ["a"] * 2, "item": ["x", "y"], "rank": [1, 2]})
    trials = [Trial(Crf(rounds=1), data, None, Goal()) for data in (Dataset.open(planted), Dataset.from_arrow(lists))]
    with pytest.raises(UsageError, match="crf learns from labels, but the dataset has none"):
        fit_each(trials, cluster)


def test_the_command_keeps_the_best_and_tells_what_was_tried(planted: Path, tmp_path: Path, capsys):
    target = tmp_path / "model"
    assert main(["fit", "rrf", str(planted), "-p", "c=1,50,1000", "--folds", "3", "-o", str(target)]) == 0
    table = capsys.readouterr().out
    values = search(variants("rrf", {"c": "1,50,1000"}), Dataset.open(planted), folds="3")
    assert load_model(target).model == Rrf(c=(1.0, 50.0, 1000.0)[int(values.argmax())])
    assert all(f"{100 * value:.2f}" in table for value in values)
    assert main(["fit", "rrf", str(planted), "-p", "c=1,50", "-o", str(tmp_path / "other")]) == 2
    assert "--folds" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
