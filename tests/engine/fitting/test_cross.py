"""Few labels: rounds and priors by cross-validation over all labelled queries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strategies import labelled

from distagg.dataset import Dataset
from distagg.dataset.frames import hold_source
from distagg.engine.fitting import cross
from distagg.engine.fitting.boost import grow
from distagg.engine.fitting.checkpoint import NoKeeper
from distagg.engine.fitting.cross import as_given, few_ways, teaching_queries
from distagg.engine.fitting.fit import Goal, fit
from distagg.engine.fitting.folds import hold_outs, make_folds, together
from distagg.engine.fitting.learner import Training
from distagg.engine.fitting.search import fit_folds
from distagg.engine.fitting.train import expert_quality, first_state
from distagg.engine.importing import import_dataset
from distagg.engine.progress import silent
from distagg.engine.runner import InlineRunner
from distagg.errors import UsageError
from distagg.models.boosted.fusion import Fusion
from distagg.models.boosted.model import LambdaMart
from distagg.models.crf.model import Crf
from distagg.models.positional.model import Rrf
from distagg.models.scorers.scorer import LambdaRank
from distagg.sources.synthetic import SyntheticSource

GOAL = Goal("map", "trec")


@pytest.fixture(scope="module")
def fold(hostile: Dataset):
    return make_folds(hostile, "5")[0]


def training(train: Dataset, valid: Dataset | None) -> Training:
    return Training(train, valid, GOAL, InlineRunner(), silent, NoKeeper())


def queries(dataset: Dataset) -> set[int]:
    return {int(at) for ref in dataset.plan() for at in ref.load().positions}


def test_parts_together_are_all_labelled_queries(fold) -> None:
    for rest, part in hold_outs(fold.train, fold.valid):
        assert queries(together(rest, part)) == queries(fold.train) | queries(fold.valid)


@pytest.mark.parametrize("model", [Crf(rounds=4, patience=4), LambdaRank(rounds=4, patience=4)])
def test_rounds_are_those_of_the_best_mean_curve(model, fold) -> None:
    """By hand: the curve of every part held out, their mean, and the weights after so many rounds on all queries."""
    model = replace(model, prior=0.0)
    ways = hold_outs(fold.train, fold.valid)
    curves = [fit(as_given(model), rest, valid=part, goal=GOAL)["curve"] for rest, part in ways]
    mean = np.mean(curves, axis=0)
    params = fit(model, fold.train, valid=fold.valid, goal=GOAL)
    np.testing.assert_allclose(params["curve"], mean)
    assert params["round"][0] == np.argmax(mean) + 1
    everything = together(fold.train, fold.valid)
    alone = replace(as_given(model), rounds=int(params["round"][0]), patience=10)
    again = fit(alone, everything, goal=GOAL)
    if again["round"][0] == alone.rounds:  # it kept its last round
        (name,) = model.weight_names
        np.testing.assert_array_equal(params[name], again[name])


def test_trees_are_as_many_as_the_best_mean_curve_says(fold, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: the curve of every part held out, their mean, and so many trees from all labelled queries."""
    model = LambdaMart(trees=12, rate=0.3)
    curves = [
        fit(as_given(model), rest, valid=part, goal=GOAL)["curve"] for rest, part in hold_outs(fold.train, fold.valid)
    ]
    mean = np.mean(curves, axis=0)
    params = fit(model, fold.train, valid=fold.valid, goal=GOAL)
    np.testing.assert_allclose(params["curve"], mean)
    best = int(np.argmax(mean)) + 1
    assert len(params["tree_starts"]) - 1 == best < 12
    (ref,) = together(fold.train, fold.valid).plan()
    chunk = ref.load()
    table, sizes = model.dense(chunk), np.diff(chunk.item_offsets)
    whole = grow(replace(model, trees=best), table, chunk.labels, sizes)
    assert params["tree_nodes"].tobytes() == whole["tree_nodes"].tobytes()
    for patched in ("cross.FEW", "boost.LARGE"):  # many validation queries; large queries
        with monkeypatch.context() as patch:
            patch.setattr(f"distagg.engine.fitting.{patched}", 1)
            given = fit(model, fold.train, valid=fold.valid, goal=GOAL)
        assert given["curve"].tobytes() == curves[0].tobytes()


@pytest.mark.parametrize("keep", ["last", "mean"])
def test_all_rounds_are_made_where_the_best_is_not_kept(keep: str, fold) -> None:
    model = Crf(rounds=4, keep=keep, prior=0.0)
    params = fit(model, fold.train, valid=fold.valid, goal=GOAL)
    again = fit(as_given(model), together(fold.train, fold.valid), goal=GOAL)
    assert params["round"] == again["round"] == 4
    np.testing.assert_array_equal(params["expert_weights"], again["expert_weights"])


def test_many_validation_queries_decide_alone(fold, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LambdaRank(rounds=3)
    given = fit(replace(model, validation="given", prior=0.0), fold.train, valid=fold.valid, goal=GOAL)
    monkeypatch.setattr(cross, "FEW", 1)
    assert len(few_ways(fold.train, fold.valid, InlineRunner())) == 1
    params = fit(model, fold.train, valid=fold.valid, goal=GOAL)
    np.testing.assert_array_equal(params["expert_weight"], given["expert_weight"])


def test_queries_that_are_not_parts_of_one_dataset_cannot_be_crossed(fold) -> None:
    with pytest.raises(UsageError, match="parts of one dataset"):
        fit(Crf(validation="cross"), fold.train, valid=labelled([1, 0], expert=fold.train.experts[0]), goal=GOAL)


def test_without_validation_queries_cross_holds_out_fifths(fold) -> None:
    params = fit(LambdaRank(rounds=2, validation="cross"), fold.train, goal=GOAL)
    assert params["round"][0] <= 2
    assert np.isfinite(params["expert_weight"]).all()


def test_the_start_is_tuned_rrf(fold) -> None:
    """Before its first round, crf with a prior ranks as rrf with the weights of experts that tuning chose."""
    model = Crf(prior=100.0)
    data = training(fold.train, fold.valid)
    quality = expert_quality(data)
    tuned = fit(Fusion(rule="rrf"), fold.train, goal=GOAL)["expert_weight"]
    np.testing.assert_allclose(quality, tuned / tuned.sum())
    (ref,) = fold.valid.plan()
    chunk = ref.load()
    score = model.score(chunk, first_state(model, data).params)
    rrf = Rrf(c=model.reciprocal).score(chunk, {"expert_weight": quality})
    np.testing.assert_allclose(score, 100.0 * model.reciprocal * rrf, atol=1e-12)


def test_a_start_that_no_round_improves_is_kept(fold) -> None:
    params = fit(Crf(prior=1e6, rate=1e-9, rounds=2, validation="given"), fold.train, valid=fold.valid, goal=GOAL)
    assert params["round"][0] == 0
    assert params["start"][0] >= params["curve"].max()


def test_the_better_start_is_chosen(fold) -> None:
    """With few labels auto is at least as good on the parts held out as either start."""
    curves = {}
    for prior in (0.0, 100.0, "auto"):
        params = fit(Crf(prior=prior, rounds=5), fold.train, valid=fold.valid, goal=GOAL)
        curves[prior] = max(params["curve"].max(), params.get("start", [0.0])[0])
    assert curves["auto"] == max(curves[0.0], curves[100.0])


def test_settings_are_chosen_on_all_parts(fold) -> None:
    """Two settings: the one whose mean over the parts held out is larger, whatever the given part says."""
    models = [LambdaRank(rounds=1, rate=0.003, prior=0.0), LambdaRank(rounds=1, rate=3.0, prior=0.0)]
    (pick,) = fit_folds(models, [fold], GOAL)
    ways = hold_outs(fold.train, fold.valid)
    means = [
        np.mean([fit(as_given(model), rest, valid=part, goal=GOAL)["curve"].max() for rest, part in ways])
        for model in models
    ]
    assert pick.model == models[int(np.argmax(means))]


def test_teaching_queries(hostile: Dataset) -> None:
    expected = sum(
        len(set(np.maximum(c.labels[a:b], 0).tolist())) > 1
        for ref in hostile.plan()
        for c in [ref.load()]
        for a, b in zip(c.item_offsets[:-1], c.item_offsets[1:], strict=True)
    )
    assert teaching_queries(hostile, InlineRunner()) == expected


def test_training_depends_neither_on_where_the_rows_are_nor_on_where_they_came_from(tmp_path: Path) -> None:
    """The same rows as a frame, read from a file, and imported to disk: several blocks, items in the same order."""
    source = SyntheticSource(320, 30, 25, missing=0.1, seed=3)
    table = hold_source(source).to_arrow()
    pq.write_table(table, tmp_path / "lists.parquet")
    ways = [
        Dataset.from_arrow(table),
        import_dataset("rankings", [tmp_path / "lists.parquet"]),
        import_dataset("rankings", [tmp_path / "lists.parquet"], tmp_path / "lists"),
    ]
    assert len(ways[0].held) > 1
    folds = [make_folds(data, "5")[0] for data in ways]
    model = Crf(rounds=2, prior=0.0, sample=4)
    learned = [fit(model, fold.train, valid=fold.valid, goal=GOAL)["expert_weights"] for fold in folds]
    assert all(weights.tobytes() == learned[0].tobytes() for weights in learned[1:])


def test_the_order_of_items_does_not_depend_on_labels(tmp_path: Path) -> None:
    """Rows that alternate between experts: items keep the order of the lists with labels and without."""
    rows = {"expert": ["a", "b"] * 3, "item": ["x", "p", "y", "x", "z", "y"], "rank": [1, 1, 2, 2, 3, 3]}
    orders = []
    for label in ({}, {"label": [1, 0, 0, 1, 0, 0]}):
        table = pa.table({**rows, **label})
        pq.write_table(table, tmp_path / "lists.parquet")
        ways = (Dataset.from_arrow(table), import_dataset("rankings", [tmp_path / "lists.parquet"]))
        orders += [next(data.chunks()).item_ids.to_pylist() for data in ways]
    assert orders == [["x", "y", "z", "p"]] * 4
