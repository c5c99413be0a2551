"""The one result object: ranking with the model's columns, how fits ended, in memory and on disk."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import distagg
from distagg.dataset import Dataset
from distagg.engine.rank import rank_to
from distagg.engine.read_rankings import read_rankings
from distagg.errors import InputError, UsageError
from distagg.models import NotConvergedWarning, model_named

BATTLES = {"winner": ["a", "a", "b", "c", "d", "e"], "loser": ["b", "c", "c", "a", "a", "f"]}


@pytest.fixture
def battles() -> Dataset:
    """One strong component (a, b, c), an unbeaten item (d), and a component of its own (e, f)."""
    return Dataset.from_arrow(pa.table(BATTLES))


def test_everything_the_model_knows_is_there(battles: Dataset):
    result = distagg.solve("bradley_terry", battles, errors="standard", trace=True)
    ranking = {row["item"]: row for row in result.ranking.to_pylist()}
    assert result.ranking.column_names == [
        "query", "item", "rank", "score", "uncertainty", "low", "high", "status", "component",
    ]  # fmt: skip
    assert {item: row["status"] for item, row in ranking.items()} == {
        "a": "ok",
        "b": "ok",
        "c": "ok",
        "d": "unbeaten",
        "e": "unbeaten",
        "f": "winless",
    }
    assert ranking["a"]["component"] == ranking["d"]["component"] != ranking["e"]["component"]
    assert all(row["low"] < row["score"] < row["high"] for row in ranking.values())
    (fit,) = result.fits.to_pylist()
    assert fit["query"] == "all"
    assert fit["converged"]
    assert fit["iterations"] == len(fit["trace"])
    assert fit["trace"][-1] == pytest.approx(fit["likelihood"])
    assert result.converged
    assert "no score alone would move" in result.criterion


def test_models_that_do_not_iterate_have_nothing_to_converge(battles: Dataset):
    result = distagg.solve("copeland", battles)
    assert result.ranking.column_names == ["query", "item", "rank", "score"]
    assert result.fits.column_names == ["query"]
    assert result.converged


def test_a_fit_without_a_maximum_is_refused_with_the_remedy(battles: Dataset):
    with pytest.raises(InputError, match=r"unbeaten \(d, e\).*2 connected.*prior=gaussian"):
        distagg.solve("bradley_terry", battles, prior="none")
    with pytest.raises(InputError, match=r"unbeaten"):
        distagg.solve("plackett_luce", battles, prior="none")


def test_not_converged_is_a_warning_and_a_flag(battles: Dataset, tmp_path: Path):
    with pytest.warns(NotConvergedWarning, match="1 queries not converged after 1 steps"):
        result = distagg.solve("mpm", battles, steps=1)
    assert not result.converged
    with pytest.warns(NotConvergedWarning):
        rank_to(tmp_path / "out", model_named("mpm", {"steps": 1}), {}, battles)
    assert '"converged": false' in (tmp_path / "out" / "_manifest.json").read_text()


def test_on_disk_as_in_memory(battles: Dataset, tmp_path: Path):
    model = model_named("bradley_terry", {"errors": "standard"})
    expected = distagg.solve(model, battles)
    rank_to(tmp_path / "parquet", model, {}, battles)
    assert read_rankings(tmp_path / "parquet").equals(expected.ranking)
    assert pq.read_table(tmp_path / "parquet" / "_fits" / "fits-00000.parquet").equals(expected.fits)
    rank_to(tmp_path / "out.csv", model, {}, battles, fmt="csv")
    found = pa_csv.read_csv(tmp_path / "out.csv")
    assert found.column_names == expected.ranking.column_names
    np.testing.assert_array_equal(found["uncertainty"], expected.ranking["uncertainty"])
    assert found["status"].to_pylist() == expected.ranking["status"].to_pylist()
    rank_to(tmp_path / "out.trec", model, {}, battles, fmt="trec")
    assert len((tmp_path / "out.trec").read_text().split()) == 6 * 6


def test_frames_come_out(battles: Dataset):
    result = distagg.solve("mpm", battles)
    assert result.to_pandas()["item"].tolist() == result.to_polars()["item"].to_list()


def test_unlabelled_data_teach_what_needs_no_labels():
    lists = pa.table(
        {"expert": ["x", "x", "x", "y", "y", "y"], "item": ["a", "b", "c"] * 2, "rank": [1, 2, 3, 1, 3, 2]}
    )
    dataset = Dataset.from_arrow(lists)
    assert distagg.rank("theta_mpm", dataset)["item"][0].as_py() == "a"
    with pytest.raises(UsageError, match="must be fitted first"):
        distagg.rank("theta_sup_mpm", dataset)


def test_settings_beside_a_made_model_are_refused(battles: Dataset):
    for model in (model_named("mpm"), distagg.fit("mpm", battles)):
        with pytest.raises(UsageError, match="settings \\(steps\\) for a mpm object, which has its own"):
            distagg.rank(model, battles, steps=3)
