"""Models as scikit-learn estimators (scikit-learn 1.6 or newer): a row of X is an item, a column an expert.

``groups`` names the query of each row, as in scikit-learn's group-wise splitters and LightGBM's rankers; without it all
rows are one query. Cells are scores (larger is better) or ranks (smaller is better); NaN says that the expert leaves
the item out. ``get_params``, ``set_params``, ``clone`` and pipelines work as with any estimator; so do cross-validation
and searches, which pass ``groups`` on where scikit-learn's metadata routing is switched on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from distagg.models import MODELS, known_name
from distagg.types import Floats

if TYPE_CHECKING:
    from distagg.dataset import Dataset

VALUES = ("score", "rank")


class RankAggregator(BaseEstimator):  # type: ignore[misc]
    """Scores of items from what several experts say of them, by any model.

    Parameters
    ----------
    model
        A model's name, a key of ``distagg.MODELS``.
    settings
        Parameters of the model by name: ``{"weights": {"dense": 2}}``.
    values
        What the cells of X are: ``score``, larger is better, or ``rank``, smaller is better.
    goal
        The metric of ``score``, and the one that supervised models learn for.
    random_state
        The seed of models that draw: a whole number, or None for 0.

    Attributes
    ----------
    fitted_
        What the model has learned: an argument for ``distagg.rank``, ``distagg.explain``, ``distagg.judge_experts``.
    experts_
        The names of the experts: the columns of X, or ``x0``, ``x1``, ...

    Examples
    --------
    >>> X = np.array([[12.1, 0.2], [11.7, 0.8], [np.nan, 0.7], [3.0, 0.1], [5.0, 0.3]])
    >>> groups = ["cats", "cats", "cats", "dogs", "dogs"]
    >>> RankAggregator("rrf").fit(X, groups=groups).predict(X, groups=groups).round(4).tolist()
    [0.0323, 0.0325, 0.0161, 0.0323, 0.0328]
    """

    # Searches and cross-validation pass groups to these methods.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__predict: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"groups": True}

    def __init__(
        self,
        model: str = "rrf",
        *,
        settings: Mapping[str, Any] | None = None,
        values: str = "score",
        goal: str = "ndcg@10",
        random_state: int | None = None,
    ) -> None:
        self.model = model
        self.settings = settings
        self.values = values
        self.goal = goal
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.positive_only = self.values == "rank"
        supervised = known_name(self.model) in MODELS and MODELS[known_name(self.model)].supervised
        tags.target_tags.required = supervised
        return tags

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> RankAggregator:
        """Learn what the model shares between queries; ``y`` are relevance labels, which unsupervised models ignore."""
        from distagg.engine.api import fit

        if self.values not in VALUES:
            raise ValueError(f"values: found {self.values!r}, expected one of {', '.join(VALUES)}")
        cells = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        self.experts_ = tuple(str(name) for name in _check_feature_names_in(self))
        data = self._dataset(cells, groups, y)
        seed = self.random_state if self.random_state is not None else 0
        self.fitted_ = fit(self.model, data, goal=self.goal, seed=seed, **(self.settings or {}))
        return self

    def predict(self, X: Any, groups: Any = None) -> Floats:
        """The score of every row; larger is better within its query."""
        from distagg.engine.api import rank

        check_is_fitted(self)
        cells = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        ranking = rank(self.fitted_, self._dataset(cells, groups))
        scores = np.empty(len(cells))
        scores[ranking["item"].cast(pa.int64()).to_numpy()] = ranking["score"].to_numpy()
        return scores

    def score(self, X: Any, y: Any, groups: Any = None) -> float:
        """The mean of ``goal`` over the queries, by trec_eval's rules."""
        from distagg.engine.api import evaluate, rank

        check_is_fitted(self)
        cells = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        data = self._dataset(cells, groups, y)
        return float(evaluate(rank(self.fitted_, data), data, [self.goal]).means[self.goal])

    def _dataset(self, cells: Floats, groups: Any, y: Any = None) -> Dataset:
        """The rows as items, named by their numbers; a list for each query and expert."""
        from distagg.dataset import Dataset

        row, column = np.nonzero(np.isfinite(cells))
        query = np.zeros(len(cells), int) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
        if len(query) != len(cells):
            raise ValueError(f"found {len(query)} groups for {len(cells)} rows, expected one for each row")
        names = np.arange(len(cells)).astype(str)
        items = {"query": query.astype(str), "item": names}
        lists = {
            "query": items["query"][row],
            "expert": np.asarray(self.experts_, dtype=object)[column],
            "item": names[row],
            self.values: cells[row, column],
        }
        known = {**items, "label": pa.nulls(len(cells), pa.int32()) if y is None else _labels(y, len(cells))}
        if not len(row):
            raise ValueError("found no finite cell in X, expected scores or ranks")
        return Dataset.from_arrow(pa.table(lists), labels=pa.table(known))


def _labels(y: Any, rows: int) -> np.ndarray:
    """Labels as whole numbers."""
    labels = np.asarray(y)
    if labels.shape != (rows,):
        raise ValueError(f"y: found the shape {labels.shape} for {rows} rows, expected a label for each row")
    wanted = "expected whole grades of relevance"
    try:
        numbers = labels.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"y: found {labels.dtype}, {wanted}") from None
    if not np.isfinite(numbers).all():
        raise ValueError(f"y: found NaN or inf, {wanted}")
    if not np.array_equal(numbers, np.round(numbers)):
        raise ValueError(f"y: found fractions, {wanted}; multiply or round them")
    return numbers.astype(np.int32)
