"""cranking: weights of experts without labels, on planted truth and however the data are cut."""

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from rounds_by_hand import run
from strategies import Query, build_chunk

from distagg.dataset import Dataset, write_dataset
from distagg.engine.fitting.fit import fit
from distagg.models import NotConvergedWarning, model_named
from distagg.sources.synthetic import SyntheticSource

SIZE, QUERIES = 8, 150


def planted_chunk(thetas, top: int):
    """Tops of rankings around an order of its own in every query, each expert with its theta."""
    draw = np.random.default_rng(1)
    made = []
    for _ in range(QUERIES):
        order, lists = draw.permutation(SIZE), {}
        for expert, theta in enumerate(thetas):
            left, ranks = list(order), {}
            for place in range(top):
                odds = np.exp(-theta * np.arange(len(left)))
                ranks[int(left.pop(draw.choice(len(left), p=odds / odds.sum())))] = place + 1.0
            lists[expert] = ranks
        made.append(Query(SIZE, lists))
    return build_chunk(made)


def rounds(model, pieces):
    return run(model.learning(pieces[0].n_experts, {}), pieces)


@pytest.mark.parametrize("top", [3, SIZE])
def test_planted_thetas_are_found(top):
    planted = np.array([0.0, 0.2, 0.5, 1.0, 0.5, 0.0])
    theta = rounds(model_named("cranking", {"largest": 10.0, "sweeps": 30}), [planted_chunk(planted, top)])[
        "expert_theta"
    ]
    np.testing.assert_allclose(theta, planted, atol=0.12)


def test_experts_are_told_apart_without_labels(tmp_path: Path):
    source = SyntheticSource(queries=300, shape="mq2008", seed=3)
    write_dataset(source, tmp_path / "data")
    dataset = Dataset.open(tmp_path / "data")
    theta = fit(model_named("cranking", {"tolerance": 0.02}), dataset)["expert_theta"]
    kind = np.array([name.split("-")[0] for name in dataset.experts])
    assert theta[kind == "adversarial"].max() == 0.0
    assert theta[kind == "good"].mean() > 10 * theta[kind == "random"].mean()
    quality = dict(zip(source.expert_names, source.qualities, strict=True))
    assert scipy.stats.spearmanr([quality[name] for name in dataset.experts], theta).statistic > 0.8


def test_any_cut_gives_the_same_thetas():
    chunk = planted_chunk([0.1, 0.8, 0.4], SIZE)
    at = np.arange(chunk.n_queries)
    pieces = [chunk.select(at < 40), chunk.select((at >= 40) & (at < 45)), chunk.select(at >= 45)]
    model = model_named("cranking", {"largest": 10.0, "sweeps": 30})
    whole, cut = rounds(model, [chunk]), rounds(model, pieces)
    np.testing.assert_allclose(whole["expert_theta"], cut["expert_theta"], rtol=1e-9)
    assert rounds(model, [chunk])["expert_theta"].tolist() == whole["expert_theta"].tolist()
    other = rounds(model_named("cranking", {"largest": 10.0, "sweeps": 30, "seed": 1}), [chunk])["expert_theta"]
    assert 0 < np.abs(other - whole["expert_theta"]).max() < 0.1


def test_weights_decide():
    query = Query(3, {0: {0: 1, 1: 2, 2: 3}, 1: {2: 1, 1: 2, 0: 3}, 2: {2: 1, 1: 2, 0: 3}})
    model, chunk = model_named("cranking"), build_chunk([query])
    assert np.argsort(-model.score(chunk, {})).tolist() == [2, 1, 0]
    told = model.score(chunk, {"expert_theta": np.array([2.0, 0.3, -np.inf])})  # the last one was never seen
    assert np.argsort(-told).tolist() == [0, 1, 2]


def test_sizes_of_chunks_may_differ():
    small, large = build_chunk([Query(2, {0: {0: 1, 1: 2}})], 2), build_chunk([Query(5, {1: {3: 1, 1: 2}})], 2)
    stage = model_named("cranking").learning(2, {})
    a, b = stage.map(small), stage.map(large)
    for merged in (stage.reduce(a, b), stage.reduce(b, a)):
        assert merged["stages"].tolist() == [[1, 1, 0, 0, 0], [0, 0, 0, 1, 1]]


def test_twins_confirm_each_other_no_further_than_the_largest_theta():
    """Two experts with the same lists are no evidence of each other, which the model cannot know."""
    apart = planted_chunk([0.3, 0.3], SIZE)
    lists = {}
    for q in range(apart.n_queries):
        ranks = apart.rank_matrix(q).toarray()
        lists[q] = {0: dict(enumerate(ranks[:, 0])), 1: dict(enumerate(ranks[:, 0])), 2: dict(enumerate(ranks[:, 1]))}
    twins = build_chunk([Query(SIZE, ranks) for ranks in lists.values()])
    theta = rounds(model_named("cranking"), [twins])["expert_theta"]
    assert theta[:2].tolist() == [0.2, 0.2]
    free = rounds(model_named("cranking", {"largest": 5.0}), [twins])["expert_theta"]
    assert free[:2].min() > 1.0


def test_experts_that_say_nothing_get_no_weight():
    params = rounds(model_named("cranking"), [build_chunk([Query(3), Query(1, {0: {0: 1}})], 3)])
    assert params["expert_theta"].tolist() == [0, 0, 0]


def test_too_few_rounds_are_said():
    with pytest.warns(NotConvergedWarning, match="after 1 rounds"):
        rounds(model_named("cranking", {"rounds": 1}), [planted_chunk([0.1, 0.8], 3)])


def test_it_learns_without_labels():
    model = model_named("cranking")
    assert model.learns
    assert not model.supervised
