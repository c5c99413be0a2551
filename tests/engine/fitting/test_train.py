"""Training in rounds: the same bits in any place, early stopping, what is kept, what is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from distagg.dataset import Dataset, expanded, write_dataset
from distagg.dataset.chunk import Chunk
from distagg.dataset.expand import expand_dataset
from distagg.engine import runner as runners
from distagg.engine.dask import DaskRunner
from distagg.engine.fitting import train
from distagg.engine.fitting.fit import fit
from distagg.engine.fitting.learner import Goal
from distagg.engine.fitting.train import evaluate_candidates
from distagg.engine.progress import Progress, silent
from distagg.engine.rank import solve
from distagg.engine.runner import Cache, InlineRunner, Round
from distagg.errors import UsageError
from distagg.models import MODELS, NotConvergedWarning, model_named
from distagg.models.base import Params
from distagg.models.crf.model import Crf
from distagg.models.trained import MODES, Trained, TrainingState
from distagg.sources.synthetic import SyntheticSource


@dataclass(frozen=True, kw_only=True)
class Votes(Trained):
    """A weight for each expert's reciprocal ranks, taught by the best item of each query against a random one."""

    name: ClassVar[str] = "votes"
    summary: ClassVar[str] = "weighted votes"
    paper: ClassVar[str] = "none"

    @property
    def weight_names(self) -> tuple[str, ...]:
        return ("expert_weight",)

    def start(self, n_experts: int) -> Params:
        return {"expert_weight": np.zeros(n_experts)}

    def prepare(self, chunk: Chunk) -> dict[str, np.ndarray]:
        features = np.zeros((chunk.n_items, chunk.n_experts))
        expert = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
        features[chunk.entry_row(), expert] = 1.0 / chunk.entry_rank
        return {"features": features}

    def score(self, chunk: Chunk, params: Params) -> np.ndarray:
        weight = params["expert_weight"]
        return self.prepared(chunk)["features"] @ np.where(np.isfinite(weight), weight, 0.0)

    def _pairs(self, chunk: Chunk, state: TrainingState) -> Iterator[np.ndarray]:
        draws, features = self.draws(chunk, state), self.prepared(chunk)["features"]
        for q in range(chunk.n_queries):
            span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
            labels, other = chunk.labels[span], int(draws.integers(chunk.item_offsets[q + 1] - chunk.item_offsets[q]))
            best = int(np.argmax(labels))
            if labels[best] > labels[other]:
                yield features[span][best] - features[span][other]

    def learn(self, chunk: Chunk, state: TrainingState) -> tuple[Params, int]:
        weight, count = state.weights["expert_weight"].copy(), 0
        for difference in self._pairs(chunk, state):
            weight += self.rate * difference / (1.0 + np.exp(weight @ difference))
            count += 1
        return {"expert_weight": weight}, count

    def slope(self, chunk: Chunk, state: TrainingState) -> tuple[Params, int]:
        weight, total, count = state.weights["expert_weight"], np.zeros(chunk.n_experts), 0
        for difference in self._pairs(chunk, state):
            total += difference / (1.0 + np.exp(weight @ difference))
            count += 1
        return {"expert_weight": total}, count


@pytest.fixture(scope="module")
def fine(planted: Path) -> Dataset:
    """The planted data in many chunks."""
    dataset = Dataset.open(planted)
    held = tuple(dataset.select(fold=(13, {residue})).plan()[0].load() for residue in range(13))
    blocks = tuple(replace(dataset.manifest.blocks[0], entries=chunk.n_entries) for chunk in held)
    return replace(dataset, held=held, manifest=replace(dataset.manifest, blocks=blocks))


@pytest.fixture(params=[1, 2])
def cluster(request: pytest.FixtureRequest, clusters: Callable[[int], DaskRunner]) -> DaskRunner:
    return clusters(request.param)


@pytest.mark.cluster
@pytest.mark.parametrize(
    "model",
    [
        *(Votes(mode=mode, rounds=4) for mode in MODES),
        Crf(mode="sum", rounds=4),
        Crf(mode="average", rounds=4),
        Crf(mode="gradient", rounds=4),
        Votes(mode="average", rounds=5, keep="mean"),
        Votes(mode="average", rounds=5, keep="last"),
    ],
    ids=lambda model: f"{model.name} {model.mode} {model.keep}",
)
def test_the_same_weights_on_any_number_of_workers(model: Trained, fine: Dataset, cluster: DaskRunner) -> None:
    here, there = fit(model, fine), fit(model, fine, runner=cluster)
    assert here.keys() == there.keys()
    for key, value in here.items():
        np.testing.assert_array_equal(there[key], value)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_learns_and_keeps_the_best_round(mode: str, fine: Dataset) -> None:
    params = fit(Votes(mode=mode, rounds=12), fine, goal=Goal("ndcg@5"))
    assert params["curve"][int(params["round"][0]) - 1] == params["curve"].max()
    assert params["curve"].max() > 0.6
    assert set(params) == {"expert_weight", "highest", "round", "curve"}


def test_patience_ends_training(fine: Dataset) -> None:
    params = fit(Votes(rounds=200, patience=3), fine)
    assert len(params["curve"]) == int(params["round"][0]) + 3


def by_hand(model: Votes, dataset: Dataset) -> list[np.ndarray]:
    """The weights after each round, in turn through all chunks, without validation."""
    state, after = model.first(dataset.manifest.experts, 2.0), []
    for _ in range(model.rounds):
        for chunk in dataset.held:
            state = replace(state, weights=model.learn(chunk, state)[0])
        state = replace(state, round=state.round + 1)
        after.append(state.weights["expert_weight"])
    return after


@pytest.mark.parametrize("rounds", [1, 2, 7, 8])
@pytest.mark.parametrize("valid", [False, True])
def test_the_last_weights_and_their_mean(rounds: int, valid: bool, fine: Dataset) -> None:
    """As training without validation, whatever the validation queries say and however little patience there is."""
    model = Votes(rounds=rounds, patience=1, validation="given")
    given = {"valid": fine.select(fold=(5, {0}))} if valid else {}
    last, mean = (fit(replace(model, keep=keep), fine, **given) for keep in ("last", "mean"))
    after = by_hand(model, fine)
    np.testing.assert_array_equal(last["expert_weight"], after[-1])
    np.testing.assert_allclose(mean["expert_weight"], np.mean(after[rounds // 2 :], axis=0), rtol=1e-12)
    assert last["round"] == mean["round"] == len(last["curve"]) == len(mean["curve"]) == rounds
    first_half = slice(0, rounds // 2 + 1)
    np.testing.assert_array_equal(last["curve"][first_half], mean["curve"][first_half])


@pytest.mark.parametrize("keep", ["last", "mean"])
def test_the_curve_ends_with_the_value_of_what_is_kept(keep: str, fine: Dataset) -> None:
    params = fit(Votes(rounds=6, keep=keep, seed=3), fine)
    (value,) = evaluate_candidates(Votes(), [params], fine, Goal(), InlineRunner())
    assert params["curve"][-1] == value


@pytest.mark.parametrize("mode", ["sum", "average"])
def test_one_chunk_makes_the_steps_that_it_learned(mode: str, fine: Dataset) -> None:
    one = replace(fine, held=fine.held[:1], manifest=replace(fine.manifest, blocks=fine.manifest.blocks[:1]))
    serial, other = (fit(Votes(mode=each, rounds=3), one) for each in ("serial", mode))
    np.testing.assert_allclose(serial["expert_weight"], other["expert_weight"], rtol=1e-12)


def test_workers_share_the_training_of_every_model_by_default() -> None:
    trained = [model for model in (model_named(name) for name in MODELS) if isinstance(model, Trained)]
    assert {model.name for model in trained} == {"crf", "lambdarank", "stagg", "sup_mc"}
    assert not [model.name for model in trained if model.serial]


def test_sums_are_over_few_large_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan follows from the data: about ``FEWEST`` chunks, until they are as large as in a single pass."""
    write_dataset(SyntheticSource(queries=60, shape="mq2008", seed=3), tmp_path / "data", block_entries=1 << 7)
    dataset = Dataset.open(tmp_path / "data")
    monkeypatch.setattr(train, "TRAIN_ENTRIES", 1 << 8)
    monkeypatch.setattr(train, "TRAIN_QUERIES", 1)
    small = len(train.training_plan(Votes(mode="average"), dataset))
    assert small > 4 * train.FEWEST
    few = train.training_plan(Votes(mode="sum"), dataset)
    assert train.FEWEST <= len(few) <= 2 * train.FEWEST
    assert sum(ref.entries for ref in few) == dataset.manifest.entries
    monkeypatch.setattr(train, "CHUNK_ENTRIES", 1 << 9)
    assert len(few) < len(train.training_plan(Votes(mode="sum"), dataset)) < small


def test_another_seed_gives_other_draws(fine: Dataset) -> None:
    one, other = (fit(Votes(seed=seed, rounds=2), fine)["expert_weight"] for seed in (0, 1))
    assert (one != other).any()


def test_weights_that_explode_are_said_and_the_last_good_ones_kept(fine: Dataset) -> None:
    with (
        pytest.warns(NotConvergedWarning, match="votes: weights were no longer finite after round 1.*lower the rate"),
        np.errstate(all="ignore"),
    ):
        params = fit(Votes(rate=1e308), fine)
    assert np.isfinite(params["expert_weight"]).all()


@pytest.mark.parametrize("keep", ["last", "mean"])
def test_the_last_finite_weights_are_kept(keep: str, fine: Dataset) -> None:
    with pytest.warns(NotConvergedWarning, match="the weights of round 0 are kept"), np.errstate(all="ignore"):
        params = fit(Votes(rate=1e308, keep=keep), fine)
    np.testing.assert_array_equal(params["expert_weight"], 0.0)


def table(labels: list[int | None]) -> pa.Table:
    n = len(labels)
    return pa.table(
        {
            "query": ["q"] * n,
            "expert": ["a"] * n,
            "item": [f"i{i}" for i in range(n)],
            "rank": range(1, n + 1),
            "label": pa.array(labels, pa.int32()),
        }
    )


def test_training_without_anything_to_learn_from_is_refused() -> None:
    with pytest.raises(UsageError, match="no query of the dataset has two items with different labels"):
        fit(Votes(), Dataset.from_arrow(table([1, 1, 1])))
    with pytest.raises(UsageError, match="votes learns from labels"):
        fit(Votes(), Dataset.from_arrow(table([None, None, None]).drop_columns("label")))


def test_validation_matches_experts_by_name(fine: Dataset) -> None:
    turned = replace(fine, experts=fine.experts[::-1])
    values = [fit(Votes(rounds=1), fine, valid=valid)["curve"][0] for valid in (fine, turned)]
    assert values[0] != values[1]
    with pytest.raises(UsageError, match="none of the dataset's experts"):
        fit(Votes(rounds=1), fine, valid=replace(fine, experts=tuple(f"new {e}" for e in fine.experts)))


class Counted(InlineRunner):
    """Counts what the rounds ask for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def rounds(self, todo: Sequence[Round], progress: Progress = silent) -> Iterator[Any]:
        self.asked.append(len(todo))
        yield from super().rounds(todo, progress)


def test_validation_travels_with_the_next_round(fine: Dataset) -> None:
    runner = Counted()
    found = fit(Votes(mode="average", rounds=4, patience=4), fine, runner=runner)
    assert len(found["curve"]) == 4
    assert runner.asked == [1, 2, 2, 2, 1]  # first, three times validation and the next, last validation


def test_an_expanded_view_trains_and_ranks_as_the_copy(planted: Path, tmp_path: Path) -> None:
    base, model = Dataset.open(planted), Crf(rounds=2, sample=3)
    expand_dataset(base, tmp_path / "copy", experts=2, items=2)
    found = []
    for dataset in (Dataset.open(tmp_path / "copy"), expanded(base, experts=2, items=2)):
        params = fit(model, dataset)
        found.append(({name: array.tobytes() for name, array in params.items()}, solve(model, params, dataset).ranking))
    assert found[0][0] == found[1][0]
    assert found[0][1].equals(found[1][1])
    assert len(found[0][0]) > 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("protocol", ["letor", "trec"])
def test_training_queries_that_validate_are_planned_and_cached_once(
    protocol: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(SyntheticSource(queries=40, shape="mq2008", seed=3), tmp_path / "data", block_entries=1 << 9)
    dataset, cache, model = Dataset.open(tmp_path / "data"), Cache(), Votes(rounds=3, mode=mode)
    monkeypatch.setattr(runners, "_cache", cache)
    monkeypatch.setattr(train, "TRAIN_ENTRIES", 1 << 10)
    monkeypatch.setattr(train, "TRAIN_QUERIES", 1)
    planned = train.training_plan(model, dataset)
    assert len(planned) > len(dataset.plan())
    fit(model, dataset, goal=Goal("map", protocol))
    assert {ref for ref, _ in cache.held} == set(planned)
    assert len(cache.held) == len(planned)
    fit(model, dataset, valid=dataset.select(fold=(2, {0})), goal=Goal("map", protocol))
    assert len(cache.held) > len(planned)


def test_chunks_of_training_hold_several_large_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one query in a chunk, the mean over chunks would move by the mean of single steps."""
    write_dataset(SyntheticSource(queries=40, shape="mq2008", seed=3), tmp_path / "data", block_entries=1 << 5)
    dataset = Dataset.open(tmp_path / "data")
    each = dataset.manifest.entries // 40
    assert train.training_entries(Votes(), dataset.manifest) == train.TRAIN_ENTRIES > 16 * each
    monkeypatch.setattr(train, "TRAIN_ENTRIES", 1)
    assert 16 * each <= train.training_entries(Votes(), dataset.manifest) < 17 * each
    model = Votes(rounds=3, mode="average")
    params = fit(model, dataset)
    monkeypatch.setattr(train, "CHUNK_ENTRIES", 2 * each)
    assert train.training_entries(Votes(), dataset.manifest) == 2 * each
    assert fit(model, dataset)["expert_weight"].tobytes() != params["expert_weight"].tobytes()
