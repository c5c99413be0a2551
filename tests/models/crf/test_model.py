"""crf: planted truth, strangers under each sharing, data that teaches nothing or little."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from strategies import Query, build_chunk

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine.compare import evaluate_model
from distagg.engine.fitting.fit import fit
from distagg.engine.rank import solve
from distagg.engine.saved import align_experts
from distagg.errors import UsageError
from distagg.models import MODELS, model_named
from distagg.models.crf.model import OBJECTIVES, Crf
from distagg.models.trained import MODES
from distagg.types import NO_LABEL

EXPERTS = ("good", "fair", "noise", "inverted")


def made(queries: int, seed: int, items: int = 12, experts: tuple[str, ...] = EXPERTS) -> Dataset:
    """Experts that see labels through little noise, more noise, noise alone and a mirror; each lists some items."""
    random = np.random.default_rng(seed)
    rows: dict[str, list] = {key: [] for key in ("query", "expert", "item", "rank", "label")}
    for q in range(queries):
        labels = np.minimum(random.integers(0, 5, items), 2)
        for expert in experts:
            sight, noise = {"good": (1, 0.5), "fair": (1, 1.5), "noise": (0, 1.0), "inverted": (-1, 0.5)}[expert]
            seen = np.argsort(-(sight * labels + noise * random.normal(size=items)))
            listed = seen[random.random(items) < 0.8]
            for place, item in enumerate(listed):
                for key, value in zip(rows, (f"q{q}", expert, f"i{item}", place + 1, int(labels[item])), strict=True):
                    rows[key].append(value)
    rows["label"] = pa.array(rows["label"], pa.int32())
    return Dataset.from_arrow(pa.table(rows))


@pytest.fixture(scope="module")
def train() -> Dataset:
    return made(120, 1)


@pytest.fixture(scope="module")
def test() -> Dataset:
    return made(60, 2)


def ndcg(model: Crf, params: dict[str, np.ndarray], dataset: Dataset) -> float:
    return float(evaluate_model(model, params, dataset, ["ndcg@5"])[1].mean())


@pytest.mark.parametrize("mode", MODES)
def test_good_experts_count_and_inverted_ones_count_backwards(mode: str, train: Dataset, test: Dataset) -> None:
    model = Crf(mode=mode, rounds=15, pairs="log", reciprocal=0)
    params = fit(model, train)
    _, won, lost = params["expert_weights"][[train.experts.index(e) for e in EXPERTS]].T
    force = won + lost
    assert force[0] > force[1] > abs(force[2])
    assert force[3] < -abs(force[2])
    assert ndcg(model, params, test) > ndcg(MODELS["rrf"](), {}, test) + 0.1


@pytest.mark.parametrize("metric", OBJECTIVES)
def test_every_objective_beats_the_consensus(metric: str, train: Dataset, test: Dataset) -> None:
    common = {"metric": metric, "rounds": 8, "sample": 11 if metric == "p@10" else 6}
    own, shared = Crf(**common), Crf(**common, sharing="consensus")
    assert ndcg(own, fit(own, train), test) > ndcg(shared, fit(shared, train), test) + 0.1


def test_drawn_orders_beat_the_consensus(train: Dataset, test: Dataset) -> None:
    own, shared = (Crf(orders=50, rounds=8, sharing=sharing) for sharing in ("individual", "consensus"))
    assert ndcg(own, fit(own, train), test) > ndcg(shared, fit(shared, train), test) + 0.1


@pytest.mark.parametrize("sample", [2, 3, 9, 12])
def test_samples_of_any_size(sample: int, train: Dataset, test: Dataset) -> None:
    model = Crf(sample=sample, rounds=6)
    assert ndcg(model, fit(model, train), test) > 0.85


def with_a_stranger(sharing: str) -> tuple[Crf, dict[str, np.ndarray], Dataset]:
    """A model of three experts, and a dataset in which one of them is replaced by somebody unknown."""
    model = Crf(sharing=sharing, rounds=10)
    train, seen = (made(n, n, experts=("good", "fair", "noise")) for n in (120, 60))
    other = replace(seen, experts=tuple("stranger" if e == "fair" else e for e in seen.experts))
    return model, align_experts(model, fit(model, train), train.experts, other.experts), other


def silenced(params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    own = params["expert_weights"]
    return {**params, "expert_weights": np.where(np.isfinite(own), own, 0.0)}


def test_strangers_are_silent_where_weights_are_individual() -> None:
    model, params, dataset = with_a_stranger("individual")
    assert np.isneginf(params["expert_weights"]).any()
    assert solve(model, params, dataset).ranking.equals(solve(model, silenced(params), dataset).ranking)


def test_strangers_follow_the_consensus_where_weights_are_mixed() -> None:
    model, params, dataset = with_a_stranger("mixed")
    assert ndcg(model, params, dataset) > ndcg(model, silenced(params), dataset)


@pytest.mark.parametrize("sharing", ["individual", "consensus", "mixed"])
def test_a_dataset_of_strangers(sharing: str, train: Dataset, test: Dataset) -> None:
    model = Crf(sharing=sharing, rounds=2)
    params, names = fit(model, train), ("a", "b", "c", "d")
    if sharing == "individual":
        with pytest.raises(UsageError, match="none of the dataset's experts"):
            align_experts(model, params, train.experts, names)
        return
    aligned = align_experts(model, params, train.experts, names)
    assert np.isfinite(solve(model, aligned, replace(test, experts=names)).ranking["score"].to_numpy()).all()


NOTHING = {
    "labels all equal": Query(4, {0: {0: 1, 1: 2, 2: 3}, 1: {3: 1}}, [1, 1, 1, 1]),
    "no labels": Query(4, {0: {0: 1, 1: 2, 2: 3}, 1: {3: 1}}, [None] * 4),
    "one item": Query(1, {0: {0: 1}}, [2]),
    "one labelled item": Query(3, {0: {0: 1, 1: 2, 2: 3}}, [1, None, None]),
}


@pytest.mark.parametrize("query", NOTHING.values(), ids=NOTHING)
@pytest.mark.parametrize("mode", MODES)
def test_queries_that_teach_nothing_are_passed_over(query: Query, mode: str) -> None:
    useful = Query(4, {0: {0: 1, 1: 2, 2: 3}, 1: {3: 1}}, [2, 1, 0, 0])
    model = Crf(mode=mode)
    state = model.first(2, 2.0)
    alone, _ = model.learn(build_chunk([query], n_experts=2), state)
    assert not alone["expert_weights"].any()
    both = state.map(build_chunk([useful, query], n_experts=2))
    assert both["count"][0] == 1.0
    with pytest.raises(UsageError, match="nothing to train crf on"):
        rows = {"query": ["q"] * 3, "expert": ["a"] * 3, "item": ["x", "y", "z"], "rank": [1, 2, 3], "label": [1] * 3}
        fit(model, Dataset.from_arrow(pa.table(rows)))


def test_more_labels_than_the_sample_holds() -> None:
    size = 9
    query = Query(size, {0: {i: i + 1 for i in range(size)}}, list(range(size))[::-1])
    model = Crf(sample=3, pairs="log")
    weights, count = model.learn(build_chunk([query] * 5, n_experts=1), model.first(1, 8.0))
    assert count == 5
    assert (weights["expert_weights"][0, 1:] > 0.0).all()


def test_negative_and_missing_labels_count_as_not_relevant() -> None:
    query = Query(4, {0: {0: 1, 1: 2, 2: 3, 3: 4}}, [2, -1, None, 0])
    model = Crf()
    weights, count = model.learn(build_chunk([query], n_experts=1), model.first(1, 2.0))
    assert count == 1
    assert np.isfinite(weights["expert_weights"]).all()


def test_a_rate_far_too_high_gives_finite_scores(train: Dataset) -> None:
    model = Crf(rate=1e300, rounds=3)
    assert np.isfinite(solve(model, fit(model, train), train).ranking["score"].to_numpy()).all()


def test_ratings_need_pairs_that_fit_them() -> None:
    chunk = build_chunk([Query(3, {0: {0: -5.0, 1: -3.0, 2: -1.0}}, [2, 1, 0])])
    with pytest.raises(UsageError, match="needs ranks above 0"):
        Crf(pairs="log", reciprocal=0).learn(chunk, Crf(pairs="log", reciprocal=0).first(1, 2.0))
    with pytest.raises(UsageError, match="needs ranks above 0"):
        Crf(pairs="binary").learn(chunk, Crf(pairs="binary").first(1, 2.0))
    for pairs in ("binary", "difference", "normalised"):
        model = Crf(pairs=pairs, reciprocal=0)
        weights, _ = model.learn(chunk, model.first(1, 2.0))
        assert np.isfinite(weights["expert_weights"]).all()


@pytest.mark.parametrize("sample", [1, 13, 6.5])
def test_samples_that_cannot_be(sample: float) -> None:
    with pytest.raises(UsageError, match="sample of crf"):
        Crf(sample=sample)


def test_precision_of_the_whole_sample_is_refused() -> None:
    """It is the same for every ranking."""
    with pytest.raises(UsageError, match="p@10 is the same for every ranking of 6 items"):
        Crf(metric="p@10", sample=6)


def test_fitted_saved_and_ranked_from_the_command_line(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = str(tmp_path / "model")
    assert main(["fit", "crf", str(planted), "-o", where, "-p", "rounds=2", "-p", "sharing=mixed"]) == 0
    assert "log won" in capsys.readouterr().out
    assert main(["rank", where, str(planted), "-o", str(tmp_path / "ranked")]) == 0


def test_settings_by_name() -> None:
    assert model_named("crf", {"pairs": "log+binary", "sample": "8", "metric": "ndcg@5"}) == Crf(
        pairs="log+binary", sample=8, metric="ndcg@5"
    )
    with pytest.raises(UsageError, match="parameter metric of crf"):
        model_named("crf", {"metric": "tau"})


def test_only_labelled_items_need_potentials() -> None:
    """Weights are those of a chunk whose unlabelled items have potentials too."""
    draws = np.random.default_rng(2)
    lists = {e: {int(i): n + 1.0 for n, i in enumerate(draws.permutation(20)[:15])} for e in range(4)}
    labels = np.where(draws.random(20) < 0.5, draws.integers(0, 3, 20), NO_LABEL).astype(np.int32)
    chunk = replace(build_chunk([Query(20, lists), Query(20, lists)], n_experts=4), labels=np.tile(labels, 2))
    model, known = Crf(), np.tile(labels != NO_LABEL, 2)
    some, every = model.prepare(chunk), model.prepare(replace(chunk, labels=np.zeros(40, dtype=np.int32)))
    for i in range(40):
        own, all_own = (np.arange(arrays["start"][i], arrays["start"][i + 1]) for arrays in (some, every))
        assert len(own) == (len(all_own) if known[i] else 0)
        if known[i]:
            assert some["potentials"][own].tolist() == every["potentials"][all_own].tolist()
            assert some["holder"][own].tolist() == every["holder"][all_own].tolist()


def scored(queries: int, seed: int) -> Dataset:
    """Two experts of ten items each: a relevant item has a score far above the others, or none stands out."""
    random = np.random.default_rng(seed)
    rows: dict[str, list] = {key: [] for key in ("query", "expert", "item", "score", "label")}
    for q in range(queries):
        labels = np.arange(10) == random.integers(10)
        sure = random.integers(2)  # the expert that found it; the other one guesses, and its scores fall evenly
        for expert in range(2):
            if expert == sure:
                value = np.where(labels, 50.0, random.random(10))
            else:
                value = random.permutation(10) + random.random(10)
            for item in range(10):
                for key, cell in zip(rows, (f"q{q}", f"e{expert}", f"i{item}", value[item], labels[item]), strict=True):
                    rows[key].append(cell)
    rows["label"] = pa.array(np.array(rows["label"], dtype=int), pa.int32())
    return Dataset.from_arrow(pa.table(rows))


def test_scores_tell_what_ranks_do_not() -> None:
    train, test = scored(80, 1), scored(80, 2)
    found = {}
    for scores in ("no", "minmax"):
        model = Crf(scores=scores, rounds=20)
        params = fit(model, train)
        found[scores] = float(np.mean(evaluate_model(model, params, test, ["mrr"], protocol="trec")[1]))
    assert found["minmax"] > found["no"] + 0.1
    assert found["minmax"] > 0.97


@pytest.mark.parametrize("sharing", ["individual", "consensus"])
def test_training_and_ranking_have_the_same_scores_as_potentials(sharing: str) -> None:
    """Naive: weights times potentials, entry by entry, where the last potential is the score from 0 to 1."""
    chunk, model = next(scored(3, 4).chunks()), Crf(scores="minmax", sharing=sharing)
    random, prepared = np.random.default_rng(5), model.prepare(chunk)
    params = {name: random.normal(size=rows.shape) for name, rows in model.start(2).items()}
    weights = params[model.weight_names[0]]
    naive = np.zeros(chunk.n_items)
    for item in range(chunk.n_items):
        for at in range(prepared["start"][item], prepared["start"][item + 1]):
            expert = chunk.list_expert[prepared["holder"][at]] if sharing == "individual" else 0
            naive[item] += weights[expert] @ prepared["potentials"][at]
    np.testing.assert_allclose(model.score(chunk, params), naive, atol=1e-12)
    assert model.weight_columns[-1] == "score"
    first = slice(chunk.entry_offsets[0], chunk.entry_offsets[1])
    own = chunk.entry_score[first]
    wanted = dict(zip(chunk.entry_item[first].tolist(), (own - own.min()) / (own.max() - own.min()), strict=True))
    for item, value in wanted.items():
        here = slice(prepared["start"][item], prepared["start"][item + 1])
        assert prepared["potentials"][here, -1][prepared["holder"][here] == 0] == pytest.approx(value)


def test_the_slope_of_score_weights_follows_finite_differences() -> None:
    """Of the expected NDCG of one query, all of whose items are in the sample."""
    query = Query(4, {0: {0: 1, 1: 2, 2: 3, 3: 4}}, [1, 0, 2, 0])
    chunk = replace(build_chunk([query], n_experts=1), entry_score=np.array([9.0, 4.0, 3.5, 1.0]))
    model = Crf(scores="minmax", sample=4)
    start = replace(model.first(1, 2.0), weights={"expert_weights": np.full((1, 5), 0.3)})
    slope = model.slope(chunk, start)[0]["expert_weights"]

    def expected(nudge: np.ndarray) -> float:
        """By enumeration: items in turn, each with the chance of a softmax over score / log(place + 1)."""
        scores = model.score(chunk, {"expert_weights": np.full((1, 5), 0.3) + nudge})
        gains = np.exp2(chunk.labels) - 1.0
        weights, values = [], []
        for order in itertools.permutations(range(4)):
            place = np.log(np.arange(2.0, 6.0))
            weights.append(np.exp((scores[list(order)] / place).sum()))
            values.append((gains[list(order)] * np.log(2.0) / place).sum())
        return float(np.average(values, weights=weights) / max(values))

    for at in range(5):
        nudge = np.zeros((1, 5))
        nudge[0, at] = 1e-5
        assert slope[0, at] == pytest.approx((expected(nudge) - expected(-nudge)) / 2e-5, abs=1e-7)


def test_scores_that_are_not_there_are_refused() -> None:
    with pytest.raises(UsageError, match="needs lists with scores, and the data have ranks only"):
        fit(Crf(scores="minmax", rounds=2), made(6, 1))
