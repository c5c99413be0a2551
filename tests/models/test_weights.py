"""Weights of experts: an expert of weight n counts as n experts, for every model that takes weights."""

import json

import numpy as np
import pyarrow as pa
import pytest
from rounds_by_hand import run
from strategies import Query, build_chunk, drawn_chunks

from distagg import Dataset, compare, explain, fit, rank
from distagg.engine import load_model, save_model
from distagg.errors import InputError, UsageError
from distagg.models import MODELS, model_named
from distagg.models.agreement import above_chance
from distagg.models.weights import WEIGHTS, Weighted

WEIGHTED = sorted(name for name in MODELS if issubclass(MODELS[name], Weighted))
VARIANTS = {
    "borda": [{"unlisted": "average"}, {"unlisted": "ignore"}],
    "mean": [{"unlisted": "ignore"}],
    "combsum": [{"norm": "minmax"}, {"norm": "zmuv"}, {"unlisted": "ignore"}],
    "combmnz": [{"unlisted": "ignore"}],
    "copeland": [{"unlisted": "ignore"}],
    "mc1": [{"local_kemeny": True}],
    "stagg_rrf": [{"unlisted": "average"}],
}
SETTINGS = [(name, {}) for name in WEIGHTED] + [(name, row) for name, rows in VARIANTS.items() for row in rows]
TIMES = np.array([2.0, 0.0, 1.0, 3.0, 1.0])


def cases():
    """Chunks, and the same with each expert's lists as often as TIMES says."""
    return [(chunk, chunk.repeat_experts(TIMES.astype(np.int64))) for _, chunk in drawn_chunks(25)]


def test_the_models_that_take_weights():
    asked = {"rrf", "borda", "combsum", "combmnz", "mean", "condorcet", "copeland", "mc4"}
    assert asked <= set(WEIGHTED)


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_a_weight_of_n_counts_as_n_experts_and_0_as_none(name, settings):
    model = model_named(name, settings)
    for chunk, repeated in cases():
        weighted = model.score(chunk, {"expert_weight": TIMES})
        np.testing.assert_allclose(weighted, model.score(repeated, {}), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "settings"), [row for row in SETTINGS if MODELS[row[0]].additive])
def test_weights_of_a_query_that_lies_in_several_chunks(name, settings):
    model = model_named(name, settings)
    for (query,), chunk in drawn_chunks(10, most_queries=1):
        if not query.lists:
            continue
        params = {"expert_weight": TIMES}
        pieces = [build_chunk([Query(query.size, {e: ranks})], n_experts=5) for e, ranks in query.lists.items()]
        gathered = run(model.gathering(params), pieces)
        np.testing.assert_allclose(model.score_split(pieces[0], gathered), model.score(chunk, params), atol=1e-8)


@pytest.mark.parametrize("name", ["condorcet", "copeland", "mc4"])
def test_weights_that_cancel_decide_nothing(name):
    """0.1 + 0.2 is not 0.3 in binary."""
    ahead, behind = {0: 1.0, 1: 2.0}, {1: 1.0, 0: 2.0}
    chunk = build_chunk([Query(2, {0: ahead, 1: ahead, 2: behind})], n_experts=3)
    model, weights = model_named(name), {"expert_weight": np.array([0.1, 0.2, 0.3])}
    if name == "condorcet":
        assert model.score(chunk, weights)[0] == 2  # no majority: the order of reciprocal ranks, where both are equal
    else:
        assert model.score(chunk, weights)[0] == model.score(chunk, weights)[1]


def test_pairs_count_by_the_weight_of_their_expert():
    chunk = build_chunk([Query(2, pairs=[(0, 1, 1.0, False)])], n_experts=1)
    for name in ("borda", "copeland"):
        assert model_named(name).score(chunk, {"expert_weight": np.zeros(1)}).tolist() == [0.0, 0.0]


def test_one_form_for_text_mappings_and_files(tmp_path):
    (tmp_path / "w.json").write_text(json.dumps({"dense": 2, "a,b": 0.5}))
    (tmp_path / "w.csv").write_text('expert,weight\ndense,2\n"a,b",.5\n')
    expected = '"a,b":0.5,dense:2'
    for given in ({"dense": 2.0, "a,b": 0.5}, expected, f"@{tmp_path}/w.json", f"@{tmp_path}/w.csv"):
        model = model_named("rrf", {"Weights": given})
        assert model.weights == expected
    assert WEIGHTS.numbers(expected) == {"a,b": (0.5,), "dense": (2.0,)}
    assert WEIGHTS.text("rrf", "http://x:8080/run:3") == "http://x:8080/run:3"
    assert hash(model) == hash(model_named("rrf", {"weights": {"dense": 2, "a,b": 0.5}}))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("dense:-1", "'dense', expected a number of at least 0"),
        ({"dense": "two"}, "'two' for expert 'dense'"),
        ({"dense": float("nan")}, "at least 0"),
        ("dense", "expected name:weight,name:weight, such as"),
        ("dense:2,dense:3", "named twice"),
        ("@nowhere.json", "no file nowhere.json"),
        (3, "expected a mapping"),
    ],
)
def test_wrong_weights_are_refused(given, said):
    with pytest.raises(UsageError, match=said):
        model_named("rrf", {"weights": given})


def test_wrong_files_are_refused(tmp_path):
    for body, said in (
        ("{", "broken JSON"),
        ("name,w\na,1\n", "columns name, w"),
        ("", "empty file"),
        ("expert,weight\na,x\n", r"w:2: found the weight 'x'"),
        ("expert,weight\na,1\na,2\n", "w:3: found expert 'a'"),
    ):
        (tmp_path / "w").write_text(body)
        with pytest.raises(InputError, match=said):
            model_named("rrf", {"weights": f"@{tmp_path}/w"})


def three_experts():
    rows = {
        "query": ["q"] * 6 + ["r"] * 6 + ["s"] * 6,
        "expert": ["a", "a", "b", "b", "c", "c"] * 3,
        "item": ["x", "y", "y", "x", "y", "x"] * 3,
        "rank": [1, 2] * 9,
        "label": [1, 0, 0, 1, 0, 1] * 3,
    }
    return Dataset.from_arrow(pa.table(rows))


def first(ranking):
    return ranking.column("item").to_pylist()[0]


def test_weights_work_from_end_to_end(tmp_path):
    data = three_experts()
    assert first(rank("rrf", data)) == "y"
    assert first(rank("rrf", data, weights={"a": 3})) == "x"
    fitted = fit("rrf", data, weights="a:3")
    assert fitted.params["expert_weight"].tolist() == [3, 1, 1]
    save_model(tmp_path / "model", fitted)
    assert first(rank(load_model(tmp_path / "model"), data)) == "x"
    assert first(rank(fitted, data.select(without=["b"]))) == "x"
    assert explain(fitted, data, "q")["items"][0]["item"] == "x"
    result = compare(data, ["RRF"], settings={"Rrf": {"Weights": "a:3,b:1"}}, metrics=["p@1"], baseline="rRF")
    assert result["means"]["rrf"]["p@1"] == 1.0
    grid = compare(data, ["rrf"], settings={"rrf": {"weights": ["b:3", "a:3"]}}, metrics=["p@1"], folds="3")
    assert {row["weights"] for row in grid["chosen"]["rrf"]} <= {"a:3", "b:3"}


def test_names_that_the_data_lack_are_refused_and_unseen_experts_have_weight_1():
    data = three_experts()
    with pytest.raises(UsageError, match="unknown expert in weights 'aa'; did you mean 'a'"):
        rank("rrf", data, weights={"aa": 2})
    fitted = fit("rrf", data, weights={"a": 3})
    assert fitted.params_for(("z", "a", "y"))["expert_weight"].tolist() == [1, 3, 1]
    assert fitted.params_for(("z",))["expert_weight"].tolist() == [1]


def test_auto_learns_whom_to_trust():
    data = three_experts()
    fitted = fit("rrf", data, weights="auto", goal="p@1")
    weight = fitted.params["expert_weight"]
    assert weight[0] > weight[1] + weight[2] - 1e-9
    assert first(rank(fitted, data)) == "x"
    with pytest.raises(UsageError, match="must be fitted first"):
        rank("rrf", data, weights="auto")
    assert fit("rrf", data, weights="auto", c="auto", goal="p@1").params.keys() == {"c", "expert_weight"}


def test_agreement_weighs_experts_by_their_own_pairs():
    """a is always right, b and c are always wrong: 1 and 0. An expert between gets the share of its way from chance."""
    data = three_experts()
    fitted = fit("borda", data, weights="agreement")
    assert fitted.params["expert_weight"].tolist() == [1, 0, 0]
    assert first(rank(fitted, data)) == "x"
    assert fit("rrf", data, weights="agreement", c="auto", goal="p@1").params.keys() == {"c", "expert_weight"}
    with pytest.raises(UsageError, match="must be fitted first"):
        rank("borda", data, weights="agreement")
    assert above_chance(np.array([0.9, 0.6, 0.5, 0.1])) == pytest.approx([1.0, 0.25, 0.0, 0.0])


def test_where_nobody_beats_chance_all_count_the_same():
    rows = three_experts().select(without=["a"])
    assert fit("borda", rows, weights="agreement").params["expert_weight"].tolist() == [1, 1, 1]
