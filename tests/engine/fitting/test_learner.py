"""Learners by name: every model has one, and a package can bring its own."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from distagg.dataset import Dataset
from distagg.dataset.chunk import Chunk
from distagg.engine.fitting.fit import fit
from distagg.engine.fitting.learner import LEARNERS, Learner, Training, learner_of
from distagg.errors import UsageError
from distagg.models import MODELS, Model, Params, model_named
from distagg.models.boosted.fusion import Fusion
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
