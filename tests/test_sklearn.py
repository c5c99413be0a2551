"""The scikit-learn estimator: scikit-learn's own checks, and the answers of ``distagg.rank``."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import distagg
from distagg.sklearn import RankAggregator

# A check that asks what a ranker cannot do, with the reason.
NOT_FOR_RANKERS = {"check_methods_subset_invariance": "a rank depends on the other rows of the query"}


def planted(queries: int = 40, items: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores by a good expert, a random one and an adversary that leaves some items out; labels; queries."""
    draw = np.random.default_rng(7)
    truth = draw.normal(size=queries * items)
    noise = draw.normal(size=(len(truth), 3))
    X = np.stack([truth + 0.5 * noise[:, 0], noise[:, 1], -truth + 0.5 * noise[:, 2]], axis=1)
    X[draw.random(len(truth)) < 0.3, 2] = np.nan
    return X, np.digitize(truth, [0.3, 1.2]), np.repeat(np.arange(queries), items)


@parametrize_with_checks([RankAggregator()], expected_failed_checks=lambda estimator: NOT_FOR_RANKERS)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks warn of what they skip
        check(estimator)


def test_scores_are_those_of_rank() -> None:
    X, _, groups = planted(3, 4)
    runs: dict[str, dict[str, dict[str, float]]] = {}
    for row, column in np.argwhere(np.isfinite(X)):
        runs.setdefault(f"x{column}", {}).setdefault(str(groups[row]), {})[str(row)] = X[row, column]
    ours = RankAggregator("rrf", settings={"c": 5}).fit(X, groups=groups).predict(X, groups=groups)
    for scores in distagg.rank("rrf", runs, c=5).values():
        for item, score in scores.items():
            assert ours[int(item)] == pytest.approx(score)


def test_it_learns_in_folds_of_queries_and_searches() -> None:
    X, y, groups = planted()
    weights = [{"weights": {"x0": 5}}, {"weights": {"x2": 5}}]
    with config_context(enable_metadata_routing=True):
        by_model = {
            name: cross_val_score(RankAggregator(name), X, y, cv=GroupKFold(4), params={"groups": groups}).mean()
            for name in ("rrf", "ssra")
        }
        search = GridSearchCV(RankAggregator("rrf"), {"settings": weights}, cv=GroupKFold(4))
        search.fit(X, y, groups=groups)
    assert by_model["ssra"] > by_model["rrf"] + 0.1  # it turns the adversary round
    assert search.best_params_ == {"settings": {"weights": {"x0": 5}}}


def test_parameters_clones_and_names_of_columns() -> None:
    X, y, groups = planted(10)
    frame = pd.DataFrame(X, columns=["good", "random", "bad"])
    model = RankAggregator("bestinput").set_params(goal="map")
    fitted = clone(model).fit(frame, y, groups=groups)
    assert fitted.get_params() == {
        "model": "bestinput", "settings": None, "values": "score", "goal": "map", "random_state": None,
    }  # fmt: skip
    assert fitted.experts_ == fitted.fitted_.experts == ("good", "random", "bad")
    assert not hasattr(model, "fitted_")
    assert fitted.score(frame, y, groups=groups) > 0.7
    best = distagg.judge_experts(fitted.fitted_)
    assert {row.expert for row in best} == {"good", "random", "bad"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"y": [0.5, 1, 0]}, "found fractions"),
        ({"y": ["a", "b", "c"]}, "expected whole grades"),
        ({"y": [1, 0]}, "expected a label for each row"),
        ({"groups": [1, 2]}, "expected one for each row"),
        ({"X": np.full((3, 2), np.nan)}, "no finite cell"),
    ],
)
def test_wrong_input_is_refused(change: dict[str, Any], said: str) -> None:
    given = {"X": np.arange(6.0).reshape(3, 2), "y": [1, 0, 0], "groups": [0, 0, 0], **change}
    with pytest.raises(ValueError, match=said):
        RankAggregator().fit(**given)
    with pytest.raises(ValueError, match="expected one of score, rank"):
        RankAggregator(values="points").fit(np.arange(6.0).reshape(3, 2))
