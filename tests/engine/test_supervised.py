"""One contract for every model that learns from labels: fit, rank and evaluate, under both protocols."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.frames import TableSource
from distagg.engine import Fitted, evaluate, fit, rank
from distagg.errors import UsageError
from distagg.models import MODELS, Model, model_named

SMALL = {
    "crf": {"rounds": 2},
    "lambdarank": {"rounds": 2},
    "rankagg": {"rounds": 2},
    "stagg": {"rounds": 2},
    "lambdamart": {"trees": 3},
    "blend": {"crf": 1, "lambdamart": 1, "lambdarank": 1},
}
EXTRA = [("rrf", {"c": "auto"}), ("stagg_rrf", {"c": "auto"}), ("cps", {"theta": "learn"})]
SUPERVISED = [(name, SMALL.get(name, {})) for name, model in MODELS.items() if model().needs_labels] + EXTRA


def taught(labels: tuple[int | None, ...]) -> Dataset:
    """Twelve queries with these labels, item by item in turn; a ranks rightly, b the other way round, c at random."""
    draw, rows = np.random.default_rng(5), []
    for q in range(12):
        of = [labels[(i + q) % len(labels)] for i in range(6)]
        value = [-5 if label is None else label for label in of]
        orders = {"a": np.argsort([-v for v in value], kind="stable"), "b": np.argsort(value, kind="stable"),
                  "c": draw.permutation(6)}  # fmt: skip
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
    here, there = (
        learned(model, Dataset.from_arrow(table), "trec").params for table in (with_zeros, negative)
    )  # fmt: skip
    assert {key: value.tobytes() for key, value in here.items()} == {k: v.tobytes() for k, v in there.items()}


def test_labels_beyond_those_of_lightgbm_are_refused() -> None:
    with pytest.raises(UsageError, match="label 31, and LightGBM takes labels up to 30"):
        learned(model_named("lambdamart", SMALL["lambdamart"]), taught((31, 0, 1)), "letor")
