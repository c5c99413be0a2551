"""lambdarank: a scoring function on features of lists, trained for a metric. Volkovs & Zemel 2014, section 3.5.

Cost: SVD features once for every list, O(entries) a step; then O(entries) for each query and round, and the pairs of
differently labelled items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import param
from distagg.models.rounds import Params
from distagg.models.scorers.kernels import OBJECTIVES, Goal, Net, climb
from distagg.models.scorers.scorer import Scorer, best_dcg
from distagg.types import Floats

RANKERS = ("sgd", "lightgbm")


@dataclass(frozen=True, kw_only=True)
class LambdaRank(Scorer):
    """In training, unlabelled items hold their places and make no pairs.

    LambdaRank's forces climb the metric itself. ``rankagg``, the baseline of Niu et al. 2013, is the same model.
    """

    name: ClassVar[str] = "lambdarank"
    summary: ClassVar[str] = "features of every expert's list, weighted by LambdaRank from labels"
    paper: ClassVar[str] = (
        "Volkovs & Zemel 2014, section 3.5; Burges, Ragno & Le 2006; as rankagg: Niu et al. 2013, section 5.2"
    )

    ranker: str = param(
        "sgd",
        "what learns on them: sgd (LambdaRank), or lightgbm (an extra): the model lambdamart, with its settings",
        choices=RANKERS,
    )
    objective: str = param("ndcg", "the metric to train for", choices=tuple(OBJECTIVES))
    rate: float = param(
        0.003, "length of a step; smaller than the papers' 0.01, which is too long for these gradients", above=0.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ranker != "sgd":
            raise UsageError("ranker=lightgbm is the model lambdamart: LambdaMart(features='svd')")

    def _climb(self, chunk: Chunk, params: Params, queries: np.ndarray, net: Net, step: float, target: Net) -> int:
        goal = Goal(OBJECTIVES[self.objective], float(params["highest"][0]), self._whole(chunk))
        return climb(goal, bool(self.hidden), queries, chunk.grades(), self._rows(chunk), net, step, target)

    def _whole(self, chunk: Chunk) -> Floats:
        """What the metric of each query is divided by: the best gain there is, or the number of relevant items."""
        if self.objective in ("err", "rbp"):
            return np.ones(chunk.n_queries)
        if self.objective == "map":
            return np.bincount(chunk.item_query(), chunk.labels >= 1, chunk.n_queries).astype(np.float64)
        return best_dcg(chunk)
