"""lambdamart and blend: trees as LightGBM's own, planted truth, strangers, what is refused, the same bits anywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import lightgbm
import numpy as np
import pyarrow as pa
import pytest
from strategies import Query, build_chunk

from distagg import rank
from distagg.cli.evaluating import all_models
from distagg.dataset import Dataset
from distagg.dataset.chunk import Chunk
from distagg.engine import Fitted, load_model, save_model
from distagg.engine.compare import evaluate_model
from distagg.engine.dask import DaskRunner
from distagg.engine.fitting import boost
from distagg.engine.fitting.boost import _grow_on_workers, _settings, grow
from distagg.engine.fitting.fit import fit
from distagg.engine.fitting.folds import hold_outs, in_turn, make_folds
from distagg.errors import UsageError
from distagg.models import MODELS, Model, model_named
from distagg.models.boosted.blend import PLAIN, TOP, Blend
from distagg.models.boosted.model import COMMON, LambdaMart, standardised
from distagg.models.crf.model import Crf
from distagg.models.pool import fused_places
from distagg.models.scorers.scorer import LambdaRank


@pytest.fixture(scope="module")
def halves(hostile: Dataset) -> tuple[Dataset, Dataset]:
    return hostile.select(fold=(3, {0, 1})), hostile.select(fold=(3, {2}))


@pytest.fixture
def cluster(clusters: Callable[[int], DaskRunner]) -> DaskRunner:
    return clusters(2)


@pytest.fixture
def _short_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of a blend are trained for a few rounds and trees; workers are sent the members themselves."""
    whole_length = Blend.members.fget  # type: ignore[attr-defined]

    def members(self: Blend) -> dict[str, Model]:
        short = {LambdaMart: {"trees": 15}, Crf: {"rounds": 10}, LambdaRank: {"rounds": 10}}
        return {name: replace(member, **short.get(type(member), {})) for name, member in whole_length(self).items()}

    monkeypatch.setattr(Blend, "members", property(members))


def test_a_chunk_without_items_has_no_rows(hostile: Dataset) -> None:
    chunk = whole(hostile)
    empty = LambdaMart().dense(chunk.select(np.zeros(chunk.n_queries, dtype=np.bool_)))
    assert empty.shape == (0, LambdaMart().dense(chunk).shape[1])


def whole(dataset: Dataset) -> Chunk:
    (ref,) = dataset.plan()
    return ref.load()


def value(model, params, dataset: Dataset) -> float:
    return float(np.nanmean(evaluate_model(model, params, dataset, ["ndcg@5"])[1]))


@pytest.mark.parametrize(
    "features",
    [{}, {"features": "svd", "pairs": "all", "rank": 2}, {"features": "borda"}, {"features": "cp", "rank": 2}],
    ids=str,
)
def test_trees_score_as_lightgbm_does(halves: tuple[Dataset, Dataset], features: dict) -> None:
    train, test = (whole(part) for part in halves)
    model = LambdaMart(trees=40, leaves=9, **features)
    assert model.dense(test).shape == (test.n_items, len(model.column_names(halves[1].experts)))
    sizes = np.diff(train.item_offsets)
    data = lightgbm.Dataset(model.dense(train), train.labels, group=sizes)
    booster = lightgbm.train(_settings(model, *model.dense(train).shape), data, 40)
    params = {**grow(model, model.dense(train), train.labels, sizes), "expert_row": np.arange(float(train.n_experts))}
    expected = booster.predict(model.dense(test))
    assert len(set(expected)) > 100
    assert model.score(test, params) == pytest.approx(expected, abs=1e-12)
    some = test.labels > 0
    assert model.dense(test, some).tobytes() == model.dense(test)[some].tobytes()
    assert model.dense(build_chunk([], n_experts=test.n_experts)).shape == (0, model.dense(test).shape[1])
    stages = model.stages(test, params)
    assert len(stages) == 40
    assert stages[17] == pytest.approx(booster.predict(model.dense(test), num_iteration=18), abs=1e-12)
    assert stages[-1].tobytes() == model.score(test, params).tobytes()


def test_tables_of_many_columns_grow_the_same_trees(
    halves: tuple[Dataset, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    """LightGBM then sums up column by column; that is faster, and changes no tree."""
    model, chunk = LambdaMart(trees=20), whole(halves[0])
    table, sizes = model.dense(chunk), np.diff(chunk.item_offsets)
    assert "force_row_wise" in _settings(model, *table.shape)
    by_row = grow(model, table, chunk.labels, sizes)
    monkeypatch.setattr(boost, "MANY_COLUMNS", table.shape[1] - 1)
    assert "force_col_wise" in _settings(model, *table.shape)
    by_column = grow(model, table, chunk.labels, sizes)
    assert {k: v.tobytes() for k, v in by_row.items()} == {k: v.tobytes() for k, v in by_column.items()}


def test_trees_learn_from_labelled_items_and_a_pool() -> None:
    lists = {e: {i: float((i * (e + 1)) % 40) + 1.0 for i in range(40)} for e in range(3)}
    labels = [1 if i in (3, 39) else 0 if i == 35 else None for i in range(40)]
    chunk = build_chunk([Query(40, lists, labels)], n_experts=3)
    ref = SimpleNamespace(load=lambda ids: chunk)
    table, known, sizes = boost._table(LambdaMart(pool=5), ref)
    first = set(np.flatnonzero(fused_places(chunk) < 5).tolist())
    assert sizes.tolist() == [len(table)] == [len(known)] == [len(first | {3, 35, 39})]
    assert known.sum() == 2
    assert boost._table(LambdaMart(pool=0), ref)[2].tolist() == [40]
    assert boost._table(LambdaMart(pool=5, unjudged="ignore"), ref)[2].tolist() == [3]


def test_columns_hold_what_they_say(hostile: Dataset) -> None:
    chunk = build_chunk([Query(4, {0: {0: 1.0, 1: 2.0, 2: 3.0}, 2: {3: 1.0, 0: 5.0}})], n_experts=3)
    columns = dict(zip(LambdaMart().column_names(("a", "b", "c")), LambdaMart().dense(chunk).T, strict=True))
    assert columns["a:binary won"].tolist() == [0.5, 0.25, 0.0, 0.0]
    assert columns["a:binary lost"].tolist() == [0.0, -0.25, -0.5, 0.0]
    assert columns["c:reciprocal"].tolist() == pytest.approx([10 / 15, 0.0, 0.0, 10 / 11])
    assert not any(columns[name].any() for name in columns if name.startswith("b:"))
    assert columns["lists"].tolist() == [1.0, 0.5, 0.5, 0.5]
    for name in COMMON[:-1]:
        assert columns[name] == pytest.approx(standardised(chunk, model_named(name).score(chunk, {})), abs=1e-6)
        assert columns[name].mean() == pytest.approx(0.0, abs=1e-6)
        assert columns[name].std() == pytest.approx(1.0, abs=1e-6)


def test_experts_that_turn_things_round_are_used_turned_back(halves: tuple[Dataset, Dataset]) -> None:
    train, test = halves
    model = LambdaMart(trees=60)
    assert value(model, fit(model, train), test) > value(model_named("rrf"), {}, test) + 0.1


def test_trees_after_the_best_are_dropped(halves: tuple[Dataset, Dataset]) -> None:
    train, valid = halves
    model = LambdaMart(trees=30, rate=0.3, validation="given")
    params = fit(model, train, valid=valid)
    assert len(params["curve"]) == 30
    assert len(params["tree_starts"]) - 1 == int(np.argmax(params["curve"])) + 1 < 30
    reached = evaluate_model(model, params, valid, ["map"])[1].mean()
    assert reached == pytest.approx(params["curve"].max(), abs=1e-12)


def test_experts_are_known_by_name(halves: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    train, test = halves
    fitted = Fitted(LambdaMart(trees=10), fit(LambdaMart(trees=10), train), train.experts)
    save_model(tmp_path / "model", fitted)
    fitted = load_model(tmp_path / "model")
    table = test.to_arrow()
    names = table["expert"].to_pylist()
    gone = train.experts[3]
    left = table.filter(pa.array([name != gone for name in names]))
    renamed = table.set_column(
        table.column_names.index("expert"), "expert", pa.array(["stranger" if name == gone else name for name in names])
    )
    for lists in (left, renamed):
        data = Dataset.from_arrow(lists)
        chunk = whole(data)
        columns = dict(zip(fitted.model.column_names(data.experts), fitted.model.dense(chunk).T, strict=True))
        silent = np.zeros(chunk.n_items)
        rows = np.stack([columns.get(name, silent) for name in fitted.model.column_names(train.experts)], axis=1)
        expected = [
            sum(walk(fitted.params, t, row) for t in range(len(fitted.params["tree_starts"]) - 1)) for row in rows
        ]
        assert fitted.model.score(chunk, fitted.params_for(data.experts)) == pytest.approx(expected, abs=1e-12)


def walk(params: dict, tree: int, row: np.ndarray) -> float:
    """The naive twin of the kernel: one item down one tree."""
    first = int(params["tree_starts"][tree])
    node = first
    while True:
        column, threshold, left, right = params["tree_nodes"][:, node]
        if column < 0:
            return threshold
        node = first + int(left if row[int(column)] <= threshold else right)


def labelled(labels: list[int | None]) -> Dataset:
    items = [f"i{n}" for n in range(len(labels))]
    lists = pa.table({"query": ["q"] * len(items), "expert": ["a"] * len(items), "item": items,
                      "rank": list(range(1, len(items) + 1))})  # fmt: skip
    known = pa.table({"query": ["q"] * len(items), "item": items, "label": pa.array(labels, pa.int32())})
    return Dataset.from_arrow(lists, labels=known.filter(known["label"].is_valid()))


def test_what_teaches_nothing_is_refused(hostile: Dataset) -> None:
    model = LambdaMart(trees=3)
    for labels in ([1, 1, 1], [0], [0, 0]):
        with pytest.raises(UsageError, match="two items with different labels"):
            fit(model, labelled(labels))
    lists = pa.table({"query": ["q"] * 2, "expert": ["a"] * 2, "item": ["x", "y"], "rank": [1, 2]})
    with pytest.raises(UsageError, match="lambdamart learns from labels"):
        fit(model, Dataset.from_arrow(lists))
    with pytest.raises(UsageError, match="10,001 labelled items, but LightGBM takes 10,000"):
        fit(model, labelled([1] + [0] * 10_000))
    assert len(fit(model, labelled([2, 1, 0]))["curve"]) == 3


def test_without_lightgbm_the_error_says_what_to_install(
    halves: tuple[Dataset, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    params = fit(LambdaMart(trees=2), halves[0])
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(UsageError, match=r"pip install 'distagg\[lightgbm\]'"):
        fit(LambdaMart(trees=2), halves[0])
    assert rank(Fitted(LambdaMart(trees=2), params, halves[0].experts), halves[1]).num_rows  # ranking does not need it


def test_a_comparison_of_all_leaves_out_what_is_not_installed(
    hostile: Dataset, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {"blend", "lambdamart", "crf"} <= set(all_models(hostile, "letor5"))
    monkeypatch.setattr("distagg.cli.evaluating.find_spec", lambda name: None)
    others = {name for name in MODELS if "lists" not in MODELS[name].inputs}
    assert set(MODELS) - others - set(all_models(hostile, "letor5")) == {"blend", "lambdamart"}
    assert "lambdamart is skipped: lightgbm is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("settings", [{"trees": 1.5}, {"columns": 1.1}, {"items": 2.0}, {"leaves": 1}], ids=str)
def test_wrong_settings_are_refused(settings: dict) -> None:
    with pytest.raises(UsageError, match=next(iter(settings))):
        LambdaMart(**settings)


@pytest.mark.cluster
def test_workers_grow_trees_together(halves: tuple[Dataset, Dataset], cluster: DaskRunner) -> None:
    train, test = halves
    spread, serial = LambdaMart(trees=5, mode="spread", rate=0.5), LambdaMart(trees=5, rate=0.5)
    params = fit(spread, train, runner=cluster)
    assert value(spread, params, test) > value(model_named("rrf"), {}, test) + 0.1
    assert abs(value(spread, params, test) - value(serial, fit(serial, train), test)) < 0.1
    inline = fit(spread, train)  # without workers there is nothing to spread over
    assert inline["tree_nodes"].tobytes() == fit(serial, train)["tree_nodes"].tobytes()


def test_unencrypted_connections_between_machines_are_refused(halves: tuple[Dataset, Dataset]) -> None:
    client = SimpleNamespace(nthreads=lambda: {"tls://10.0.0.7:4000": 1, "tls://127.0.0.1:4001": 1})
    with pytest.raises(UsageError, match=r"10\.0\.0\.7.*not encrypted"):
        _grow_on_workers(LambdaMart(mode="spread"), halves[0], SimpleNamespace(client=client))


@pytest.mark.usefixtures("_short_members")
def test_a_blend_is_the_sum_of_its_members(halves: tuple[Dataset, Dataset]) -> None:
    train, test = halves
    model = Blend(crf=1, lambdamart=1, lambdarank=1, seed=2)
    params = fit(model, train)
    chunk, (rest, part) = whole(test), in_turn(train)[0]
    weights = {kind: float(params[f"weight of {kind}"][0]) for kind in model.kinds}
    assert sum(weights.values()) == pytest.approx(1.0, abs=1e-3)
    expected = np.zeros(chunk.n_items)
    for name, member in model.members.items():
        learned = fit(member, train) if name.split()[0] in PLAIN else fit(member, rest, valid=part)
        score = member.score(chunk, learned)
        placed = 1.0 / (TOP - score) if name == "bestinput 1" else score
        expected += weights[name.split()[0]] * standardised(chunk, placed)
    assert model.score(chunk, params) == pytest.approx(expected, abs=1e-9)
    assert value(model, params, test) > value(model_named("rrf"), {}, test) + 0.1


def test_a_blend_of_an_earlier_version_adds_its_members_up(halves: tuple[Dataset, Dataset]) -> None:
    """It has no weights, and no plain members."""
    train, test = halves
    model, members = (
        Blend(crf=1, lambdamart=1, lambdarank=0),
        {"crf 1": Crf(rounds=3), "lambdamart 1": LambdaMart(trees=5)},
    )
    learned = {name: fit(member, train) for name, member in members.items()}
    params = {f"{key} of {name}": array for name, each in learned.items() for key, array in each.items()}
    chunk = whole(test)
    expected = sum(standardised(chunk, members[name].score(chunk, learned[name])) for name in members)
    assert model.score(chunk, params) == pytest.approx(expected, abs=1e-12)


def test_members_of_a_blend_differ() -> None:
    members = Blend(crf=4, lambdamart=2, lambdarank=0, combsum=False, ssra=False).members
    trained = ["crf 1", "crf 2", "crf 3", "crf 4", "lambdamart 1", "lambdamart 2"]
    assert list(members) == ["bestinput 1", "rrf 1", *trained]
    assert len(set(members.values())) == 8
    with pytest.raises(UsageError, match="no members"):
        Blend(crf=0, lambdamart=0, lambdarank=0, bestinput=False, rrf=False, combsum=False, ssra=False)
    with pytest.raises(UsageError, match="whole number"):
        Blend(crf=1.5)


@pytest.mark.usefixtures("_short_members")
def test_a_blend_has_fewer_members_where_queries_are_large(
    halves: tuple[Dataset, Dataset], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = Blend(crf=2, lambdamart=0, lambdarank=1, large=1)
    assert model.for_size(1000) is model
    assert Blend(large=0).for_size(5000) == Blend(large=0)
    assert Blend().for_size(5000).members.keys() == Blend(crf=4, lambdamart=4, lambdarank=4).members.keys()
    caplog.set_level("INFO", logger="distagg")
    assert any(key.endswith(" of crf 2") for key in fit(model, halves[0]))
    assert "members of each kind" not in caplog.text
    monkeypatch.setattr("distagg.models.boosted.blend.LARGE", 5)
    fewer, asked = fit(model, halves[0]), fit(replace(model, crf=1), halves[0])
    assert {k: v.tobytes() for k, v in fewer.items()} == {k: v.tobytes() for k, v in asked.items()}
    assert "at most 1 members of each kind" in caplog.text
    chunk = whole(halves[1])
    assert model.score(chunk, fewer).tobytes() == replace(model, crf=1).score(chunk, asked).tobytes()


@pytest.mark.usefixtures("_short_members")
@pytest.mark.cluster
def test_a_blend_is_the_same_on_workers_and_on_disk(
    halves: tuple[Dataset, Dataset], cluster: DaskRunner, tmp_path: Path
) -> None:
    train, test = halves
    model = Blend(crf=1, lambdamart=1, lambdarank=0)
    params = fit(model, train)
    apart = fit(model, train, runner=cluster)
    assert {k: v.tobytes() for k, v in apart.items()} == {k: v.tobytes() for k, v in params.items()}
    save_model(tmp_path / "blend", Fitted(model, params, train.experts))
    fitted = load_model(tmp_path / "blend")
    again = Dataset.from_arrow(test.to_arrow())  # experts in another order
    first, second = rank(fitted, test), rank(fitted, again)
    assert first["item"].to_pylist() == second["item"].to_pylist()


def test_boost_needs_a_labelled_validation_query(halves: tuple[Dataset, Dataset]) -> None:
    lists = pa.table({"query": ["q"] * 2, "expert": [halves[0].experts[0]] * 2, "item": ["x", "y"], "rank": [1, 2]})
    with pytest.raises(UsageError, match="learns from labels"):
        fit(LambdaMart(trees=2), halves[0], valid=Dataset.from_arrow(lists))


def test_lambdarank_with_ranker_lightgbm_is_lambdamart_on_its_features() -> None:
    made = model_named("lambdarank", {"ranker": "lightgbm", "rank": "2", "trees": "9"})
    assert made == LambdaMart(features="svd", rank=2, trees=9)
    with pytest.raises(UsageError, match=r"LambdaMart\(features='svd'\)"):
        LambdaRank(ranker="lightgbm")
    with pytest.raises(UsageError, match="hidden"):
        model_named("lambdarank", {"ranker": "lightgbm", "hidden": 3})


@pytest.mark.usefixtures("_short_members")
def test_members_of_a_blend_hold_out_the_parts_in_turn(hostile: Dataset) -> None:
    fold = make_folds(hostile, "letor5")[0]
    model, chunk = Blend(crf=5, lambdamart=1, lambdarank=0, bestinput=False, rrf=False, combsum=False), whole(fold.test)
    ways = hold_outs(fold.train, fold.valid)
    learned = {
        name: fit(member, *ways[(int(name[-1]) - 1) % 4][:1], valid=ways[(int(name[-1]) - 1) % 4][1])
        for name, member in model.members.items()
    }
    params = fit(model, fold.train, valid=fold.valid)
    weights = {kind: float(params[f"weight of {kind}"][0]) for kind in model.kinds}
    expected = model.joined(learned, weights)
    assert {k: v.tobytes() for k, v in params.items()} == {k: v.tobytes() for k, v in expected.items()}
    assert model.score(chunk, params).std() > 0.0


def test_scores_that_differ_by_rounding_alone_are_equal_when_standardised() -> None:
    chunk = build_chunk([Query(3, {0: {0: 1.0}}), Query(2, {0: {0: 1.0}})])
    scores = standardised(chunk, np.array([0.3, 0.1 + 0.2, 0.3, 1.0, 3.0]))
    assert scores.tolist() == [0.0, 0.0, 0.0, -1.0, 1.0]
