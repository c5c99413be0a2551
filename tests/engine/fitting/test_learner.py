"""Learners by name: every model has one, and a package can bring its own."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from distagg.dataset import Dataset
from distagg.dataset.build.writer import write_dataset
from distagg.dataset.chunk import Chunk
from distagg.engine.fitting.fit import fit
from distagg.engine.fitting.learner import LARGE, LEARNERS, Goal, Learner, Training, goal_values, learner_of
from distagg.errors import UsageError
from distagg.metrics import parse_metric, score_chunk
from distagg.models import MODELS, Model, Params, model_named
from distagg.models.boosted.fusion import Fusion
from distagg.sources.deep import DeepSource
from distagg.types import Floats


class Counting(Learner):
    name: ClassVar[str] = "counting"

    def fit(self, model: Model, data: Training) -> Params:
        return {"queries": np.array([float(data.train.manifest.queries)])}


@dataclass(frozen=True, kw_only=True)
class Counted(Model):
    name: ClassVar[str] = "counted"
    learner: ClassVar[str] = "counting"

    def score(self, chunk: Chunk, params: Params) -> Floats:
        return np.zeros(chunk.n_items)


LISTS = pa.table({"query": ["q", "q", "r"], "expert": ["a"] * 3, "item": ["x", "y", "x"], "rank": [1, 2, 1]})


def test_every_model_has_a_learner_of_its_name() -> None:
    members = {Fusion.learner}  # of a model that has no name of its own
    assert {learner.name for learner in LEARNERS.values()} == {MODELS[name].learner for name in MODELS} | members
    assert all(learner_of(model_named(name)).name == MODELS[name].learner for name in MODELS)


@pytest.mark.parametrize(("name", "early"), [("rrf", False), ("crf", True), ("lambdamart", True), ("blend", True)])
def test_learners_say_whether_validation_queries_stop_them(name: str, early: bool) -> None:
    assert learner_of(model_named(name)).stops_early == early


def test_a_package_adds_a_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("counting", f"{__name__}:Counting", LEARNERS.group)
    monkeypatch.setitem(LEARNERS.__dict__, "installed", {"counting": point})
    assert fit(Counted(), Dataset.from_arrow(LISTS))["queries"].tolist() == [2.0]


def test_an_unknown_learner_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"learner of counted.*'counting'.*map_reduce"):
        fit(Counted(), Dataset.from_arrow(LISTS))


@pytest.mark.parametrize("protocol", ["trec", "letor"])
def test_places_that_are_counted_give_the_metric_of_sorted_items(tmp_path: Path, protocol: str) -> None:
    write_dataset(DeepSource(3, items=2000, experts=4, depth=900), tmp_path / "deep")
    (chunk,) = Dataset.open(tmp_path / "deep").chunks()
    assert chunk.n_items > LARGE * chunk.n_queries
    draws = np.random.default_rng(0)
    for name in ("map", "ndcg@10", "ndcg", "mrr", "p@20", "bpref"):
        for scores in (draws.normal(size=chunk.n_items), draws.integers(0, 5, chunk.n_items).astype(float)):
            exact = score_chunk(chunk, scores, [parse_metric(name)], protocol=protocol, max_grade=3)[:, 0]
            np.testing.assert_allclose(goal_values(Goal(name, protocol), chunk, scores, 3), exact, rtol=1e-12)
    scores[0] = -np.inf  # not ranked: nothing is counted
    exact = score_chunk(chunk, scores, [parse_metric("map")], protocol=protocol, max_grade=3)[:, 0]
    assert goal_values(Goal("map", protocol), chunk, scores, 3).tobytes() == exact.tobytes()
