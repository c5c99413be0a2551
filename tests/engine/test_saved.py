"""Models on disk: what is written is read back, whatever does not fit is refused with its file or its names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distagg.dataset import Dataset
from distagg.engine import Fitted, load_model, save_model
from distagg.errors import InputError, UsageError
from distagg.models.crf.model import Crf
from distagg.models.scorers.scorer import LambdaRank
from distagg.models.trained import Trained
from distagg.storage.atomic import digest
from distagg.storage.sealed import sealed

EXPERTS = ("google", "bing", "duck")


def drawn(model: Trained) -> Fitted:
    random = np.random.default_rng(0)
    params = {name: random.normal(size=value.shape) for name, value in model.start(len(EXPERTS)).items()}
    return Fitted(model, {**params, "round": np.ones(1), "curve": np.zeros(0)}, EXPERTS)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(tmp_path / "model", drawn(Crf(rate=0.1)))
    return tmp_path / "model"


@pytest.mark.parametrize(
    "model",
    [Crf(sharing="mixed"), LambdaRank(hidden=3, layers=2), LambdaRank(experts="combined")],
    ids=["crf", "hidden", "combined"],
)
def test_saved_and_read_back_to_the_last_bit(model: Trained, tmp_path: Path) -> None:
    fitted = drawn(model)
    save_model(tmp_path / "model", fitted)
    again = load_model(tmp_path / "model")
    assert (again.model, again.experts, again.params.keys()) == (model, EXPERTS, fitted.params.keys())
    for name, value in fitted.params.items():
        np.testing.assert_array_equal(again.params[name], value)
        assert again.params[name].shape == value.shape


def test_the_directory_is_versioned_and_holds_no_pickle(saved: Path) -> None:
    assert sorted(file.name for file in saved.iterdir()) == [
        "_SUCCESS",
        "experts.parquet",
        "manifest.json",
        "params.parquet",
    ]
    body = json.loads((saved / "manifest.json").read_text())
    assert (body["format"], body["schema"], body["model"], body["settings"]["rate"]) == ("distagg-model", 1, "crf", 0.1)


def change(saved: Path, **changes: object) -> None:
    body = json.loads((saved / "manifest.json").read_text())
    (saved / "manifest.json").write_bytes(sealed({**body, **changes}))


def relist(saved: Path, name: str) -> None:
    """Let the manifest hold the hash of a file as it is now."""
    files = json.loads((saved / "manifest.json").read_text())["files"]
    change(saved, files=[{**f, "sha256": digest(saved / name)} if f["path"] == name else f for f in files])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": 99}, "schema version 99, expected at most 1; a newer distagg wrote it"),
        ({"schema": None}, "schema version None"),
        ({"format": "distagg-dataset"}, "expected 'distagg-model'"),
        ({"model": "crfs"}, "found model 'crfs'"),
        ({"model": None}, "found model 'None'"),
        ({"settings": {"rates": 1.0}}, "settings that do not fit .*unknown parameter of crf 'rates'"),
        ({"settings": {"rate": -1.0}}, "settings that do not fit .*above 0"),
        ({"model": "lambdarank", "settings": {}}, "found no expert_weight, expected the weights of lambdarank"),
    ],
    ids=str,
)
def test_manifests_that_do_not_fit(saved: Path, changes: dict[str, object], said: str) -> None:
    change(saved, **changes)
    with pytest.raises(InputError, match=said):
        load_model(saved)


def test_experts_that_do_not_fit_the_weights(saved: Path) -> None:
    pq.write_table(pa.table({"expert": ["google", "bing"]}), saved / "experts.parquet")
    with pytest.raises(InputError, match=r"experts.parquet: found another SHA-256"):
        load_model(saved)
    relist(saved, "experts.parquet")
    with pytest.raises(
        InputError, match=r"params.parquet: found expert_weights of shape \(3, 4\), expected 2 experts'"
    ):
        load_model(saved)


def test_damaged_files(saved: Path) -> None:
    table = pq.read_table(saved / "params.parquet")
    shapes = pa.array([[7]] * len(table), pa.list_(pa.int64()))
    pq.write_table(table.set_column(1, "shape", shapes), saved / "params.parquet")
    relist(saved, "params.parquet")
    with pytest.raises(InputError, match=r"params.parquet: found 0 numbers in curve, expected the shape \(7,\)"):
        load_model(saved)
    (saved / "params.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"params\.parquet"):
        load_model(saved)
    (saved / "_SUCCESS").unlink()
    with pytest.raises(InputError, match="_SUCCESS"):
        load_model(saved)


STRANGE = ("bing", "yahoo", "ask")


def ranked_by(experts: Sequence[str]) -> Dataset:
    """Every expert lists one item."""
    n = len(experts)
    return Dataset.from_arrow(pa.table({"expert": list(experts), "item": ["x"] * n, "rank": [1] * n}))


@pytest.mark.parametrize(
    ("known", "unseen", "level"), [(10, 0, None), (10, 1, "INFO"), (8, 2, "WARNING"), (5, 5, "WARNING")]
)
def test_unseen_experts_are_said(known: int, unseen: int, level: str | None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "distagg")
    names = tuple(f"known {n}" for n in range(known))
    fitted = Fitted(Crf(), Crf().start(known), names)
    fitted.params_on(ranked_by([*names, *(f"new {n}" for n in range(unseen))]))
    assert [record.levelname for record in caplog.records] == ([level] if level else [])
    if level:
        share = unseen / (known + unseen)
        assert (
            f"{unseen} of the dataset's {known + unseen} experts, with {share:.0%} of its entries, are" in caplog.text
        )


@pytest.mark.parametrize("model", [LambdaRank(), LambdaRank(hidden=2)], ids=["linear", "hidden"])
def test_lambdarank_names_the_experts_it_does_not_know(model: Trained) -> None:
    fitted = drawn(model)
    with pytest.raises(UsageError) as error:
        fitted.params_on(ranked_by(STRANGE))
    assert str(error.value).startswith(
        "2 of the dataset's 3 experts, with 67% of its entries, are unknown to the model: yahoo, ask; it was fitted on "
        "google, bing, duck; the data lack google, duck; fit a model on these experts"
    )
    assert not fitted.params_on(ranked_by(STRANGE), allow_unseen=True)["expert_weight"][1:].any()
    aligned = fitted.params_for(("duck", "google"))
    np.testing.assert_array_equal(aligned["expert_weight"], fitted.params["expert_weight"][[2, 0]])
    everybody = tuple(f"new {n}" for n in range(30))
    with pytest.raises(UsageError, match=r"none of the dataset's experts: new 0, .*, new 11 and 18 more; it was"):
        fitted.params_for(everybody)


def test_models_that_take_strangers() -> None:
    silent = drawn(Crf()).params_for(STRANGE)["expert_weights"]
    assert np.isneginf(silent[1:]).all()
    assert np.isfinite(silent[0]).all()
    with pytest.raises(UsageError, match="knows none of the dataset's experts: yahoo, ask; it was fitted on google"):
        drawn(Crf()).params_for(STRANGE[1:])
    for model in (Crf(sharing="mixed"), Crf(sharing="consensus"), LambdaRank(experts="combined")):
        drawn(model).params_for(STRANGE[1:])
