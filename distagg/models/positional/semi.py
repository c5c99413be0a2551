"""ssra: points of experts' lists with weights learned from few labels and from all unlabelled items (Chen et al. 2011).

An item's score is a weighted sum of the points that experts give it. Chen et al. ask three things of the weights: items
of labelled pairs stand in the right order; items to which experts give similar points have similar scores, labelled or
not (the manifold of items); and experts who agree with the others count more. Their quadratic programme has a
constraint for each labelled pair. Here every labelled pair asks for a gap of 1 by least squares, so that sums over
queries are all that is needed: one pass, then one solution of as many equations as there are experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Tally, param, sum_entries
from distagg.models.pool import first_items
from distagg.models.positional.scores import CombSum
from distagg.models.positional.semi_kernels import level_moments, similar_gaps
from distagg.models.rounds import Params, Stage, Statistics
from distagg.models.unjudged import MOST, training_labels, unjudged_param
from distagg.types import NO_LABEL, Floats, Labels, Offsets

MOST_EXPERTS = 2000  # a matrix of 32 MB for each of three sums
NEIGHBOURS = 300  # items of a query whose points are compared with each other, the first by reciprocal rank fusion


@dataclass(frozen=True, kw_only=True)
class SemiSupervised(Tally):
    """A weighted sum of points. The weights minimise the sum of three means over queries:

    - of labelled pairs, the squared distance of their score gap from 1;
    - of all pairs, the squared score gap times the similarity of the items' points, times ``smooth``;
    - the squared distance of the weights from weights by agreement among experts, times ``shrink`` and the mean squared
      gap of an expert's points on labelled pairs.

    The similarity of two items falls with the squared distance of their points, as a normal density does whose variance
    is the query's mean squared distance. An expert's weight by agreement is the correlation of its points with the sum
    of the other experts' points, 0 where it is negative; these weights are scaled to mean gaps of 1 on labelled pairs.
    Learned weights may be negative: such experts are inverted. Points are those of ``combsum``. Of a large query only
    items with labels, and the first ones by reciprocal rank fusion, are learned from; 300 of them are compared with
    each other.
    """

    name: ClassVar[str] = "ssra"
    summary: ClassVar[str] = "points with expert weights from few labels and all unlabelled items"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 3.3; Chen et al. 2011"
    supervised: ClassVar[bool] = True
    unseen: ClassVar[float] = -np.inf  # marks unseen experts, who are ignored: the weights of known ones are finite

    # The middle of what validation queries of both LETOR sets choose, fold by fold.
    smooth: float = param(1.0, "weight of similar items having similar scores", least=0.0)
    shrink: float = param(0.03, "weight of the distance from weights by agreement among experts", above=0.0)
    unjudged: str = unjudged_param("zero")

    def learning(self, n_experts: int, params: Params) -> Stage:
        if n_experts > MOST_EXPERTS:
            raise UsageError(
                f"{self.name} learns from sums over pairs of experts; found {n_experts:,} experts, expected at most "
                f"{MOST_EXPERTS:,}; choose rrf with weights=agreement"
            )
        return Moments(self)

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        expert = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
        weight = np.where(np.isfinite(params["expert_weight"]), params["expert_weight"], 0.0)
        return {"sum": sum_entries(chunk, points(chunk) * weight[expert])}


@dataclass(frozen=True, slots=True, eq=False)
class Moments(Stage):
    """The one round: sums over queries of products of experts' points."""

    repeated: ClassVar[bool] = False

    model: SemiSupervised

    def map(self, chunk: Chunk) -> Statistics:
        experts = chunk.n_experts
        sums: Statistics = {name: np.zeros((experts, experts)) for name in ("gaps", "similar", "points")}
        sums |= {"gap": np.zeros(experts), "count": np.zeros(2)}  # queries with labelled pairs, queries
        labels = training_labels(chunk, self.model.unjudged)
        kept, first = (labels != NO_LABEL) | first_items(chunk, MOST), first_items(chunk, NEIGHBOURS)
        expert = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
        row, point = chunk.entry_row(), points(chunk)
        for q in range(chunk.n_queries):
            base, end = chunk.item_offsets[q], chunk.item_offsets[q + 1]
            entries = slice(*chunk.entry_offsets[chunk.list_offsets[[q, q + 1]]])
            of_items = np.zeros((end - base, experts))
            of_items[row[entries] - base, expert[entries]] = point[entries]
            _add_labelled(of_items, labels[base:end], sums)
            _add_unlabelled(of_items[kept[base:end]], of_items[first[base:end]], sums)
        return sums

    def finish(self, statistics: Statistics) -> Params:
        labelled, queries = statistics["count"]
        if not labelled:
            raise UsageError(f"nothing to train {self.model.name} on: no query has two items with different labels")
        gaps, gap = statistics["gaps"] / labelled, statistics["gap"] / labelled
        similar, together = statistics["similar"] / queries, statistics["points"] / queries
        prior = _by_agreement(together)
        prior = prior / max(float(prior @ gap), np.finfo(float).tiny) if prior @ gap > 0.0 else 0.0 * prior
        size = max(float(np.trace(gaps)) / len(gap), np.finfo(float).tiny)  # of a typical expert's gaps
        shrink = self.model.shrink * size * np.eye(len(gap))
        weight = np.linalg.solve(gaps + self.model.smooth * similar + shrink, gap + np.diagonal(shrink) * prior)
        return {"expert_weight": weight}


def points(chunk: Chunk) -> Floats:
    """The points of each entry (E,), 0 for the items that a list leaves out."""
    value, bottom = CombSum().normalised(chunk, {})
    return value - bottom


def _add_labelled(of_items: Floats, grades: Labels, sums: Statistics) -> None:  # (size, experts), (size,)
    """Add the means over a query's labelled pairs: of the products of gaps in points, and of these gaps."""
    known = np.unique(grades[grades != NO_LABEL])
    level = np.where(grades == NO_LABEL, -1, np.searchsorted(known, grades))
    counts, first, second = np.bincount(level[level >= 0]), *_moments(of_items, level, len(known))
    gaps, gap, pairs = 0.0 * sums["gaps"], 0.0 * sums["gap"], 0
    for high in range(len(known)):
        for low in range(high):  # sums over the pairs of two levels, from sums over their items
            cross = np.outer(first[high], first[low])
            gaps += counts[low] * second[high] + counts[high] * second[low] - cross - cross.T
            gap += counts[low] * first[high] - counts[high] * first[low]
            pairs += int(counts[high] * counts[low])
    if pairs:
        sums["count"][0] += 1
        sums["gaps"] += gaps / pairs
        sums["gap"] += gap / pairs


def _add_unlabelled(of_items: Floats, first: Floats, sums: Statistics) -> None:  # (items, experts) each
    """Add a query's covariance of points, and the mean over pairs of its first items of gaps by their similarity."""
    sums["count"][1] += 1
    size = max(len(of_items), 1)
    total, products = _moments(of_items, np.zeros(len(of_items), dtype=np.int64), 1)
    sums["points"] += products[0] / size - np.outer(total[0] / size, total[0] / size)
    if len(first) > 1:
        similar_gaps(first, sums["similar"])


def _moments(of_items: Floats, level: Offsets, levels: int) -> tuple[Floats, Floats]:
    """Sums of points (levels, experts) and of their products (levels, experts, experts), by level."""
    experts = of_items.shape[1]
    first, second = np.zeros((levels, experts)), np.zeros((levels, experts, experts))
    level_moments(of_items, level.astype(np.int64), first, second)
    return first, second


def _by_agreement(together: Floats) -> Floats:  # (experts, experts) -> (experts,)
    """Each expert's correlation with the sum of the others, at least 0."""
    own = np.diagonal(together)
    cross = together.sum(axis=1) - own
    others = np.maximum(together.sum() - 2.0 * together.sum(axis=1) + own, 0.0)
    spread = np.sqrt(own * others)
    return np.where(spread > 0.0, np.maximum(cross, 0.0) / np.where(spread > 0.0, spread, 1.0), 0.0)
