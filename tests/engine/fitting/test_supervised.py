"""One contract for every model that learns from labels: fit, rank and evaluate, under both protocols."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from documents import blocks

from distagg import rank
from distagg.dataset import Chunk, Dataset, write_dataset
from distagg.dataset.frames import TableSource
from distagg.engine import Fitted, evaluate, explain, fit, judge_experts
from distagg.errors import UsageError
from distagg.models import MODELS, Model, NotConvergedWarning, Params, model_named
from distagg.models.base import Statistics, Tally, sum_entries

SMALL = {
    "crf": {"rounds": 2},
    "lambdarank": {"rounds": 2},
    "stagg": {"rounds": 2},
    "lambdamart": {"trees": 3},
    "blend": {"crf": 1, "lambdamart": 1, "lambdarank": 1},
    "slidefuse": {"window": 1},  # the lists have six items
}
EXTRA = [("rrf", {"c": "auto"}), ("stagg_rrf", {"c": "auto"}), ("cps", {"theta": "learn"})]
SUPERVISED = [(name, SMALL.get(name, {})) for name, model in MODELS.items() if model().needs_labels] + EXTRA


def taught(labels: tuple[int | None, ...]) -> Dataset:
    """Twelve queries with these labels, item by item in turn; a ranks rightly, b the other way round, c at random."""
    draw, rows = np.random.default_rng(5), []
    for q in range(12):
        of = [labels[(i + q) % len(labels)] for i in range(6)]
        value = [-5 if label is None else label for label in of]
        orders = {
            "a": np.argsort([-v for v in value], kind="stable"),
            "b": np.argsort(value, kind="stable"),
            "c": draw.permutation(6),
        }
        rows += [
            (f"q{q}", expert, f"i{item}", place + 1, of[item])
            for expert, order in orders.items()
            for place, item in enumerate(order.tolist())
        ]
    names = ("query", "expert", "item", "rank", "label")
    return Dataset.from_arrow(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))))


def learned(model: Model, dataset: Dataset, protocol: str) -> Fitted:
    train, valid = dataset.select(fold=(3, {0, 1})), dataset.select(fold=(3, {2}))
    return fit(model, train, valid=valid, goal="ndcg", protocol=protocol)


@pytest.mark.parametrize("labels", [(2, 0, 1), (2, -1, 0, None), (1, -1, -2)], ids=str)
@pytest.mark.parametrize("protocol", ["letor", "trec"])
@pytest.mark.parametrize(("name", "settings"), SUPERVISED, ids=lambda value: value if isinstance(value, str) else "")
def test_learns_ranks_and_is_evaluated(name: str, settings: dict, protocol: str, labels: tuple, tmp_path: Path) -> None:
    dataset = taught(labels)
    write_dataset(TableSource(dataset.to_arrow()), tmp_path / "data")
    dataset = Dataset.open(tmp_path / "data")  # on disk, chunks have item ids only where they are asked for
    rankings = rank(learned(model_named(name, settings), dataset, protocol), dataset)
    assert np.isfinite(rankings["score"].to_numpy()).all()
    assert 0.0 < evaluate(rankings, dataset, ["ndcg"], protocol=protocol).means["ndcg"] <= 1.0


@pytest.mark.parametrize(("name", "settings"), SUPERVISED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_negative_label_teaches_what_0_teaches(name: str, settings: dict) -> None:
    """As in every metric: judged, and not relevant."""
    model = model_named(name, settings)
    with_zeros = taught((2, 0, 1, None, 0, 0)).to_arrow()
    zeros = with_zeros["label"].to_numpy(zero_copy_only=False)
    items = with_zeros["item"].to_numpy(zero_copy_only=False)
    fewer = pa.array(np.where((zeros == 0) & (items > "i2"), -1, zeros), from_pandas=True)
    negative = with_zeros.set_column(with_zeros.column_names.index("label"), "label", fewer)
    assert -1 in fewer.to_pylist()
    here, there = (learned(model, Dataset.from_arrow(table), "trec").params for table in (with_zeros, negative))
    assert {key: value.tobytes() for key, value in here.items()} == {k: v.tobytes() for k, v in there.items()}


def test_labels_beyond_those_of_lightgbm_are_refused() -> None:
    with pytest.raises(UsageError, match="label 31, but LightGBM takes labels up to 30"):
        learned(model_named("lambdamart", SMALL["lambdamart"]), taught((31, 0, 1)), "letor")


@dataclass(frozen=True, kw_only=True)
class Recipe(Model):
    """A supervised model that learns in one pass: it knows nothing of experts that it has not seen."""

    name: ClassVar[str] = "recipe"
    summary: ClassVar[str] = "lists that weigh what their experts were worth"
    paper: ClassVar[str] = "-"
    supervised: ClassVar[bool] = True

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        gain = np.maximum(chunk.labels, 0)[chunk.entry_row()] / chunk.entry_rank
        owner = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
        return {"expert_weight": np.bincount(owner, gain, chunk.n_experts)}

    def score(self, chunk: Chunk, params: Params) -> np.ndarray:
        weight = np.repeat(params["expert_weight"][chunk.list_expert], np.diff(chunk.entry_offsets))
        return sum_entries(chunk, weight / chunk.entry_rank)


def guides_model(name: str) -> Model:
    """A model that the guide shows how to write."""
    page = (Path(__file__).parents[3] / "jobs" / "guides" / "models.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": __name__}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, "models.md", "exec", dont_inherit=True), names)
    model: Model = names[name]()
    return model


BY_EXPERT = [
    *(model_named(name, settings) for name, settings in [*SUPERVISED, ("theta_mpm", {}), ("cranking", {"rounds": 2})]),
    *(model_named("crf", {"rounds": 2, "sharing": sharing}) for sharing in ("consensus", "mixed")),
    model_named("lambdarank", {"rounds": 2, "hidden": 2}),
    Recipe(),
    guides_model("Earned"),
]
LABELS = (2, 0, 1, 0)


def scored(fitted: Fitted, lists: pa.Table) -> np.ndarray:
    """Scores of the same items in the same order, whoever ranks them."""
    items = taught(LABELS).to_arrow().group_by(["query", "item"]).aggregate([("label", "max")])
    items = items.rename_columns(["query", "item", "label"]).sort_by([("query", "ascending"), ("item", "ascending")])
    dataset = Dataset.from_arrow(lists.drop_columns("label"), labels=items)
    rankings = rank(fitted, dataset, allow_unseen=True)
    return rankings.sort_by([("query", "ascending"), ("item", "ascending")])["score"].to_numpy()


@pytest.fixture(scope="module", params=BY_EXPERT, ids=lambda model: repr(model)[:40])
def fitted(request: pytest.FixtureRequest) -> Fitted:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return fit(request.param, taught(LABELS))


def by(lists: pa.Table, *experts: str) -> pa.Table:
    return lists.filter(pc.is_in(lists["expert"], pa.array(experts)))


def called(lists: pa.Table, name: str) -> pa.Table:
    names = pa.array([name] * len(lists))
    return lists.set_column(lists.column_names.index("expert"), "expert", names)


def test_the_order_of_experts_changes_nothing(fitted: Fitted) -> None:
    lists = taught(LABELS).to_arrow()
    turned = pa.concat_tables([by(lists, name) for name in "cba"])
    assert Dataset.from_arrow(turned).experts != Dataset.from_arrow(lists).experts
    np.testing.assert_allclose(scored(fitted, turned), scored(fitted, lists), rtol=1e-9, atol=1e-9)


def test_an_expert_that_is_gone_is_missing_everywhere(fitted: Fitted) -> None:
    scores = scored(fitted, by(taught(LABELS).to_arrow(), "a", "c"))
    assert np.isfinite(scores).all()
    assert len(set(scores.round(6))) > 1


def test_an_expert_that_is_new_gets_finite_scores(fitted: Fitted) -> None:
    lists = taught(LABELS).to_arrow()
    scores = scored(fitted, pa.concat_tables([lists, called(by(lists, "b"), "new")]))
    assert np.isfinite(scores).all()
    assert len(set(scores.round(6))) > 1


def test_an_expert_that_is_renamed_is_a_new_one(fitted: Fitted) -> None:
    """Neither taken for the one it was, nor for another that stands in its place."""
    lists = taught(LABELS).to_arrow()
    renamed = pa.concat_tables([called(by(lists, "a"), "new"), by(lists, "b", "c")])
    moved = pa.concat_tables([by(lists, "b", "c"), called(by(lists, "a"), "new")])
    assert np.isfinite(scored(fitted, renamed)).all()
    np.testing.assert_allclose(scored(fitted, renamed), scored(fitted, moved), rtol=1e-9, atol=1e-9)


def test_a_tally_that_learns_does_not_take_its_tallies_for_params() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Unfinished(Tally):
        name: ClassVar[str] = "unfinished"
        supervised: ClassVar[bool] = True

        def map(self, chunk: Chunk, params: Params) -> Statistics:
            return {"sum": sum_entries(chunk, -chunk.entry_rank)}

    with pytest.raises(NotImplementedError, match="Unfinished is a Tally that learns, and has to write 'learning'"):
        fit(Unfinished(), taught(LABELS))


def test_most_of_the_data_by_unseen_experts_is_refused_unless_allowed() -> None:
    lists = taught(LABELS).to_arrow()
    fitted = fit(Recipe(), Dataset.from_arrow(lists))
    strange = Dataset.from_arrow(
        pa.concat_tables([by(lists, "a"), called(by(lists, "b"), "x"), called(by(lists, "c"), "y")])
    )
    with pytest.raises(UsageError, match="2 of the dataset's 3 experts, with 67% of its entries, are unknown"):
        rank(fitted, strange)
    assert rank(fitted, strange, allow_unseen=True).num_rows == strange.manifest.items
    with pytest.raises(UsageError, match="--allow-unseen"):
        explain(fitted, strange, "q0")
    with pytest.raises(UsageError, match="--allow-unseen"):
        judge_experts(fitted, strange)
