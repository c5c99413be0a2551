"""stagg_bc and stagg_rrf: planted truth, the paper's example, settings, the real data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from strategies import Query, build_chunk

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine.compare import evaluate_model
from distagg.engine.fitting.fit import fit
from distagg.errors import UsageError
from distagg.models import model_named
from distagg.models.positional.model import RRF_CANDIDATES

BOTH = ("stagg_bc", "stagg_rrf")


@pytest.mark.parametrize("name", BOTH)
def test_planted_truth_is_found(name: str, planted: Path) -> None:
    data = Dataset.open(planted)
    means = {n: np.nanmean(evaluate_model(model_named(n), {}, data, ["tau"])[1]) for n in (name, "borda")}
    assert means[name] > 0.4
    assert means[name] > means["borda"] - 0.02


@pytest.mark.parametrize("name", BOTH)
def test_the_papers_example(name: str) -> None:
    """Section 3.2: a > b, b > c, c > d. Its own rules order them; items never seen together are told apart."""
    query = Query(4, {0: {0: 1.0, 1: 2.0}, 1: {1: 1.0, 2: 2.0}, 2: {2: 1.0, 3: 2.0}})
    scores = model_named(name, {"contest": "paper", "unlisted": "average"}).score(build_chunk([query]), {})
    assert scores[0] == scores.max()
    assert scores[3] == scores.min()
    np.testing.assert_allclose(scores[1], scores[2], rtol=1e-12)  # each won once and lost once


def test_graded_contests_become_sure_with_distance() -> None:
    """Steep contests give the plain Borda count of a full list."""
    ranks = {item: item + 1.0 for item in range(6)}
    chunk = build_chunk([Query(6, {0: ranks})])
    sure, even = (model_named("stagg_bc", {"steep": steep, "discount": False}) for steep in (1e4, 1e-9))
    np.testing.assert_allclose(sure.score(chunk, {}), 6.0 - np.arange(6.0))
    np.testing.assert_allclose(even.score(chunk, {}), np.full(6, 3.5), atol=1e-7)


def test_the_constant_can_be_chosen_on_labels(planted: Path) -> None:
    model = model_named("stagg_rrf", {"c": "auto"})
    chosen = fit(model, Dataset.open(planted))
    assert float(chosen["c"]) in RRF_CANDIDATES
    data = Dataset.open(planted)
    fixed = model_named("stagg_rrf", {"c": float(chosen["c"])})
    np.testing.assert_array_equal(
        evaluate_model(model, chosen, data, ["map"])[1], evaluate_model(fixed, {}, data, ["map"])[1]
    )


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(UsageError, match=r"c of stagg_rrf: found 0\.0, expected a number above 0"):
        model_named("stagg_rrf", {"c": "0"})
    with pytest.raises(UsageError, match="expected one of graded, paper"):
        model_named("stagg_bc", {"contest": "papers"})


PAPER = {  # NDCG@5, Niu et al. 2013, Table 1
    "mq2007-agg": {"stagg_bc": 0.4179, "stagg_rrf": 0.4195},
    "mq2008-agg": {"stagg_bc": 0.4515, "stagg_rrf": 0.4512},
}


@pytest.mark.real
def test_above_the_paper_and_above_plain_ranks(imported: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    name, target = imported
    models = "borda,rrf,stagg_bc,stagg_rrf"
    assert main(["compare", str(target), "--models", models, "--folds", "letor5", "-m", "ndcg@5", "--json"]) == 0
    found = {model: one["ndcg@5"] for model, one in json.loads(capsys.readouterr().out)["means"].items()}
    for model, plain in (("stagg_bc", "borda"), ("stagg_rrf", "rrf")):
        assert found[model] > PAPER[name][model]
        assert found[model] >= found[plain]
