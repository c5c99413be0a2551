"""The promise of CHANGELOG.md: datasets, models and rankings that an earlier version wrote are read.

The files in ``compatibility/0.1.0`` were written by distagg 0.1.0, from the made-up inputs of its guides (``example.py
cluster``, ``ratings`` and ``pairs``; the first six queries of every LETOR file, thirty users, 120 battles)::

    distagg import letor A1.txt A2.txt A3.txt A4.txt A5.txt -o lists
    distagg import ratings u.data --users u.user --items u.item --scale 1,5 -o ratings
    distagg import pairs battles.csv -o pairs
    distagg info lists --json > lists.json                                # and so on
    distagg fit crf lists -p rounds=4 -o crf --seed 3                     # lambdarank, lambdamart (trees=8), ...
    distagg rank ./crf lists -o crf.csv                                   # and so on
    distagg rank rrf lists -o rrf
    distagg rank rrf lists -o rrf.run
    distagg rank bradley_terry pairs -o bradley_terry
    distagg rank bradley_terry pairs -o first                             # by the first layout: manifest.json, fits-*
    distagg rank mpm ratings -o mpm --support --titles
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import distagg
from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine.read_rankings import read_rankings
from distagg.engine.saved import load_model
from distagg.errors import InputError

OLD = Path(__file__).parent / "compatibility" / "0.1.0"
MODELS = ("crf", "lambdarank", "bestinput")
CHANGED = ("lambdamart", "theta_mpm")  # they, or a feature of theirs, discount places since 0.2


@pytest.mark.parametrize("name", ["lists", "ratings", "pairs"])
def test_datasets_are_read_with_all_their_rows(name: str) -> None:
    dataset = Dataset.open(OLD / name)
    told = json.loads((OLD / f"{name}.json").read_text())
    assert {key: value for key, value in dataset.info().items() if key in told} == told
    rows = dataset.to_arrow()
    assert len(rows) >= told["entries"]
    assert pc.count_distinct(rows["item" if name != "pairs" else "winner"]).as_py() > 1


def test_attributes_of_users_and_titles_are_kept() -> None:
    ratings = Dataset.open(OLD / "ratings")
    young = ratings.select(audience="age < 30 and gender = 'F'")
    assert 0 < young.audience_size < ratings.audience_size
    assert ratings.titles is not None
    assert "Movie 1 (1999)" in ratings.titles["title"].to_pylist()


@pytest.mark.parametrize("name", MODELS)
def test_models_rank_as_the_version_that_fitted_them(name: str, tmp_path: Path) -> None:
    assert load_model(OLD / name).model.name == name
    _compare(OLD / name, name, tmp_path / "now.csv")


def _compare(model: Path, name: str, target: Path) -> None:
    """Every item has the score that it had, to the last digits that numerical libraries may change."""
    assert main(["rank", str(model), str(OLD / "lists"), "-o", str(target)]) == 0
    then, now = (_scores(read_rankings(file)) for file in (OLD / f"{name}.csv", target))
    assert then.keys() == now.keys()
    np.testing.assert_allclose([now[key] for key in then], list(then.values()), rtol=1e-6, atol=1e-9)


def _scores(rankings: pa.Table) -> dict[tuple[str, str], float]:
    return {(row["query"], row["item"]): row["score"] for row in rankings.to_pylist()}


@pytest.mark.parametrize("name", CHANGED)
def test_models_that_would_score_otherwise_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"found a {name} fitted by distagg 0.1, .* fit the model again"):
        load_model(OLD / name)


def test_the_same_models_are_read_if_they_count_pairs_as_they_did(tmp_path: Path) -> None:
    """Only the default of ``pairs`` changed: a model that was fitted with pairs=binary scores as before."""
    binary = tmp_path / "binary"
    shutil.copytree(OLD / "theta_mpm", binary)
    body = json.loads((binary / "manifest.json").read_text())
    body["settings"]["pairs"] = "binary"  # what the default was
    (binary / "manifest.json").write_text(json.dumps(body))
    _compare(binary, "theta_mpm", tmp_path / "now.csv")


@pytest.mark.parametrize("name", ["rrf", "bradley_terry", "first", "mpm", "rrf.run", "crf.csv"])
def test_rankings_are_read_whole(name: str) -> None:
    rankings = read_rankings(OLD / name)
    items = {"bradley_terry": 6, "first": 6, "mpm": 30}
    assert len(rankings) == items.get(name, 360)
    assert {"query", "item", "score"} <= set(rankings.column_names)


def test_rankings_are_evaluated_against_the_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    """A directory and a TREC run of the same ranking have the same value."""
    values = []
    for name in ("rrf", "rrf.run"):
        assert main(["evaluate", str(OLD / name), str(OLD / "lists"), "-m", "ndcg@5", "--json"]) == 0
        values.append(json.loads(capsys.readouterr().out)["means"]["ndcg@5"])
    assert values[0] == pytest.approx(values[1])
    assert values[0] > 0.5


def test_both_layouts_of_rankings_hold_the_same() -> None:
    """The first one kept its manifest as manifest.json, and fits beside the parts."""
    assert read_rankings(OLD / "first")["item"].to_pylist() == read_rankings(OLD / "bradley_terry")["item"].to_pylist()


def test_what_a_later_version_wrote_is_refused_by_name(tmp_path: Path) -> None:
    """The other direction is not promised; it must not be misread."""
    later = tmp_path / "later"
    shutil.copytree(OLD / "lists", later)
    manifest = later / "manifest.json"
    body = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**body, "schema": body["schema"] + 1}))
    with pytest.raises(InputError, match="schema"):
        Dataset.open(later)


def test_a_model_tells_the_version_that_fitted_it(tmp_path: Path) -> None:
    assert main(["fit", "bestinput", str(OLD / "lists"), "-o", str(tmp_path / "model")]) == 0
    assert json.loads((tmp_path / "model" / "manifest.json").read_text())["version"] == distagg.__version__


def test_the_version_is_a_semantic_one() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", distagg.__version__)
