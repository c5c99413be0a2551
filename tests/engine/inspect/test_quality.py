"""What experts do to the scores: exact sums, verdicts on planted experts, training without the unused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from crowds import planted_votes
from strategies import on_chunks

from distagg import rank
from distagg.dataset import Dataset
from distagg.dataset.chunk import Chunk
from distagg.engine import Fitted, fit
from distagg.engine.dask import DaskRunner
from distagg.engine.fitting.fit import Goal
from distagg.engine.inspect.attribution import centred, chunk_lifts, explain
from distagg.engine.inspect.quality import drop_experts, judge_experts, retrain, weight_rows
from distagg.errors import UsageError
from distagg.models import Model
from distagg.models.crf.model import Crf
from distagg.models.scorers.scorer import LambdaRank
from distagg.models.trained import MODES

SIGHT = {"good": 1.0, "fair": 0.6, "mirror": -1.0, "noise": 0.0, "coin": 0.0}


@pytest.fixture(scope="module")
def mixed() -> Dataset:
    """Experts that see labels through noise, one in a mirror, two not at all; each lists some items at random."""
    random = np.random.default_rng(5)
    rows: dict[str, list] = {key: [] for key in ("query", "expert", "item", "rank", "label")}
    for q in range(150):
        labels = np.minimum(random.integers(0, 4, 12), 2)
        for expert, sight in SIGHT.items():
            order = np.argsort(-(sight * labels + 0.5 * random.normal(size=12)))
            for place, item in enumerate(order[random.random(12) < 0.7]):
                for key, value in zip(rows, (f"q{q}", expert, f"i{item}", place + 1, int(labels[item])), strict=True):
                    rows[key].append(value)
    rows["label"] = pa.array(rows["label"], pa.int32())
    return Dataset.from_arrow(pa.table(rows))


def random_weights(model: Model, n_experts: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    return {name: draw.normal(size=value.shape) for name, value in model.start(n_experts).items()}


LINEAR = {
    "crf": Crf(),
    "consensus": Crf(sharing="consensus"),
    "mixed": Crf(sharing="mixed", pairs="log+binary"),
    "lambdarank": LambdaRank(),
    "several functions": LambdaRank(pairs="all"),
}


@pytest.mark.parametrize("name", LINEAR)
@on_chunks()
def test_lifts_add_up_to_the_score_where_it_is_a_sum(name: str, drawn: tuple[object, Chunk]) -> None:
    model, (_, chunk) = LINEAR[name], drawn
    params = random_weights(model, chunk.n_experts)
    score, total = model.score(chunk, params), np.zeros(chunk.n_items)
    for one in chunk_lifts(model, chunk, params, score):
        total[one.queries[chunk.item_query()]] += one.lift
    np.testing.assert_allclose(total, centred(chunk, score), atol=1e-9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [Crf, LambdaRank])
def test_planted_experts_are_told_apart(kind: type[Model], mode: str, mixed: Dataset) -> None:
    rate = {} if kind is Crf else {"rate": 0.3 if mode == "gradient" else 0.01}
    fitted = fit(kind(mode=mode, rounds=60, patience=60, **rate), mixed)
    for dataset in (None, mixed):
        found = {one.expert: one for one in judge_experts(fitted, dataset)}
        assert found["good"].verdict == found["fair"].verdict == "useful"
        assert found["mirror"].verdict == "inverted"
        assert found["good"].order > 1.0 > max(abs(found[name].order) for name in ("noise", "coin"))
    assert found["good"].loss > 3 * found["good"].error > 0.0
    assert found["good"].queries == 150


GRADED = {f"e{n}": 1.4 * n / 8 for n in range(1, 9)}


@pytest.fixture(scope="module")
def graded() -> Dataset:
    """Experts that see labels the better, the higher their number."""
    random = np.random.default_rng(5)
    rows: dict[str, list] = {key: [] for key in ("query", "expert", "item", "rank", "label")}
    for q in range(120):
        labels = np.minimum(random.integers(0, 4, 12), 2)
        for expert, sight in GRADED.items():
            order = np.argsort(-(sight * labels + 0.8 * random.normal(size=12)))
            for place, item in enumerate(order[random.random(12) < 0.7]):
                for key, value in zip(rows, (f"q{q}", expert, f"i{item}", place + 1, int(labels[item])), strict=True):
                    rows[key].append(value)
    rows["label"] = pa.array(rows["label"], pa.int32())
    return Dataset.from_arrow(pa.table(rows))


@pytest.mark.parametrize("name", ["theta_mpm", "theta_sup_mpm", "cranking", "crf"])
def test_better_experts_stand_higher_without_data_too(name: str, graded: Dataset) -> None:
    """Of an expert that is alone in its query, mpm scales adherence out of the scores: the least would move most."""
    fitted = fit(name, graded, **({"rounds": 20} if name == "crf" else {}))
    for dataset in (None, graded):
        order = {one.expert: one.order for one in judge_experts(fitted, dataset)}
        assert np.corrcoef([order[expert] for expert in GRADED], list(GRADED.values()))[0, 1] > 0.8


def test_without_data_the_best_input_is_the_only_useful_one(graded: Dataset) -> None:
    verdicts = {one.expert: one.verdict for one in judge_experts(fit("bestinput", graded))}
    assert [expert for expert, verdict in verdicts.items() if verdict == "useful"] == ["e8"]


def test_the_scale_is_that_of_a_typical_expert_and_silence_is_unused(mixed: Dataset) -> None:
    fitted = fit(Crf(rounds=5), mixed)
    weights = fitted.params["expert_weights"].copy()
    weights[mixed.experts.index("noise")] = 0.0
    found = judge_experts(Fitted(fitted.model, {**fitted.params, "expert_weights": weights}, fitted.experts), mixed)
    assert np.mean([one.order**2 for one in found]) == pytest.approx(1.0)
    assert np.mean([one.listed**2 for one in found]) == pytest.approx(1.0)
    noise = next(one for one in found if one.expert == "noise")
    assert (noise.verdict, noise.order, noise.listed, noise.loss) == ("unused", 0.0, 0.0, 0.0)
    assert found[-1].verdict == "unused"


def test_loss_is_the_difference_of_two_evaluations(mixed: Dataset) -> None:
    from distagg.engine.compare import evaluate_model

    fitted = fit(Crf(rounds=5), mixed)
    for one in judge_experts(fitted, mixed, goal=Goal("ndcg@3")):
        whole, less = (
            evaluate_model(fitted.model, fitted.params, data, ["ndcg@3"])[1][:, 0]
            for data in (mixed, drop_experts(mixed, [one.expert]))
        )
        assert one.loss == pytest.approx((whole - less).mean(), abs=1e-12)
        assert one.error == pytest.approx((whole - less).std(ddof=1) / np.sqrt(len(whole)), abs=1e-12)


@pytest.mark.cluster
def test_the_same_figures_on_workers(planted: Path, clusters: Callable[[int], DaskRunner]) -> None:
    dataset = Dataset.open(planted)
    fitted = fit("crf", dataset, rounds=2)
    assert judge_experts(fitted, dataset, runner=clusters(2)) == judge_experts(fitted, dataset)


@pytest.mark.parametrize("name", ["individual", "mixed", "hidden"])
def test_retraining_is_training_on_data_without_them(name: str, mixed: Dataset) -> None:
    model = LambdaRank(rounds=4, hidden=2) if name == "hidden" else Crf(rounds=4, sharing=name)
    fitted, gone = fit(model, mixed), ["noise", "coin"]
    fewer = retrain(fitted, gone, mixed)
    less = drop_experts(mixed, gone)
    np.testing.assert_array_equal(fewer.params["curve"], fit(model, less).params["curve"])
    whole, part = (np.concatenate([model.score(c, fewer.params) for c in data.chunks()]) for data in (mixed, less))
    np.testing.assert_allclose(whole, part, atol=1e-12)  # they are not heard when they speak again
    assert fewer.params["curve"].max() > 0.7


def test_trees_take_them_as_unseen_and_are_no_sum(mixed: Dataset) -> None:
    pytest.importorskip("lightgbm", reason="lambdamart trains with LightGBM, which is not installed")
    fitted = fit("lambdamart", mixed, trees=5, least=5)
    fewer = retrain(fitted, ["good"], mixed)
    assert np.isneginf(fewer.params["expert_row"]).tolist() == [expert == "good" for expert in mixed.experts]
    assert judge_experts(fewer, mixed)
    assert not explain(fitted, mixed, "q0")["exact"]


def test_an_explanation_names_who_moved_an_item(mixed: Dataset) -> None:
    fitted = fit(Crf(rounds=5), mixed)
    told = explain(fitted, mixed, "q3")
    assert told["exact"]
    assert [item["rank"] for item in told["items"]] == list(range(1, 1 + len(told["items"])))
    by_rrf = {row["item"]: row["rank"] for row in rank("rrf", mixed).to_pylist() if row["query"] == "q3"}
    assert {item["item"]: item["consensus"] for item in told["items"]} == by_rrf
    scores = [item["score"] for item in told["items"]]
    assert scores == sorted(scores, reverse=True)
    for item in told["items"]:
        assert sum(item["lifts"].values()) == pytest.approx(item["score"], abs=1e-9)
        assert set(item["ranks"]) <= set(item["lifts"]) == set(told["experts"])
    said = {(row["expert"], row["item"]): row["rank"] for row in mixed.to_arrow().to_pylist() if row["query"] == "q3"}
    assert {(e, item["item"]): r for item in told["items"] for e, r in item["ranks"].items()} == said


def test_explanations_of_other_models(mixed: Dataset) -> None:
    assert explain(fit("rrf", mixed), mixed, "q0")["exact"]
    assert not explain(fit(LambdaRank(hidden=3, rounds=3), mixed), mixed, "q0")["exact"]
    assert not explain(fit("mc4", mixed), mixed, "q0")["exact"]


def test_what_cannot_be_explained(mixed: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no query 'none' in the dataset; it has q0, q1"):
        explain(fit("rrf", mixed), mixed, "none")
    monkeypatch.setattr("distagg.engine.inspect.attribution.split_query", lambda dataset: True)
    with pytest.raises(UsageError, match="left out of whole queries"):
        judge_experts(fit("rrf", mixed), mixed)


@pytest.mark.parametrize("name", ["crowd_bt", "noisy_bt", "theta_mpm", "bradley_terry"])
def test_annotators_of_pairs_are_judged(name: str) -> None:
    """Reversers are inverted by crowd_bt alone: others can only ignore them, and a plain model follows everybody."""
    table = planted_votes()[2]
    fitted = fit(name, table)
    found = {one.expert: one for one in judge_experts(fitted, table)}
    assert set(found) == set(fitted.experts)
    good, turned = ({one.verdict for one in found.values() if one.expert.startswith(k)} for k in ("good", "turned"))
    assert good == {"useful"}
    assert (turned == {"inverted"}) == (name == "crowd_bt")
    assert "inverted" not in turned or name == "crowd_bt"
    assert all(one.listed == 0.0 and one.queries == 1 for one in found.values())
    if name == "bradley_terry":
        assert {one.reliability for one in found.values()} == {None}
    else:
        assert all(one.votes == 60 and one.low <= one.reliability <= one.high for one in found.values())


def test_weights_for_the_picture(mixed: Dataset) -> None:
    model = Crf(sharing="mixed", reciprocal=0)
    drawn = weight_rows(Fitted(model, random_weights(model, 5), mixed.experts))
    assert drawn["columns"] == ["missing", "log won", "log lost"]
    assert list(drawn["rows"]) == [*mixed.experts, "all"]
    assert weight_rows(fit("rrf", mixed)) == {}
