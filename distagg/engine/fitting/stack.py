"""Weights of the kinds of members of an ensemble, chosen on queries that the members did not learn from.

Ensemble selection (Caruana et al. 2004): kinds are added one by one, each time the one with which the goal's metric is
best, a kind more often where that helps; weights are the counts of the best step. That is done on several draws of the
queries with replacement, and the mean of the weights is taken.

Shrinkage: every draw's weights are also compared with the usual ones (``Blend.usual``) on the queries that it left out.
The final weights go from the usual ones towards the mean as far as the gain there is certain: all the way where it is
two standard errors, not at all where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.engine.fitting.learner import Goal
from distagg.engine.runner import Runner, Work
from distagg.metrics import check_protocol, highest_label, parse_metric
from distagg.metrics.ladder import Terms, ladder_terms, ladder_value
from distagg.models import Params
from distagg.models.boosted.blend import Blend
from distagg.types import Floats, Offsets

DRAWS = 20
STEPS = 8
CERTAIN = 2.0  # standard errors
GAIN = 1e-9  # of the metric: less is rounding
MOST_ITEMS = 5_000_000  # held in memory to choose weights on; queries beyond that have no say
DIGITS = 4  # of weights


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Queries, and the parameters of members that did not learn from them."""

    queries: Dataset
    learned: Mapping[str, Params]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A chunk's held-out scores: of every kind (kinds, I), and what the metric needs."""

    scores: Floats
    chunk: Chunk  # with the first entry of each list only
    terms: Terms | None


def choose_weights(model: Blend, parts: Sequence[HeldOut], goal: Goal, runner: Runner) -> dict[str, float]:
    """The weight of every kind of member; they add up to 1, and are the usual ones where no query has a metric."""
    pieces: list[_Piece] = []
    kinds = model.kinds
    goal = goal.on(parts[0].queries) if parts else goal
    highest = max((highest_label(part.queries.manifest) for part in parts), default=0)
    for part in parts:
        work = Work(_held_out_task, (model, dict(part.learned), goal, highest), ids=goal.protocol == "trec")
        for piece in runner.map(work, part.queries.plan()):
            if sum(each.scores.shape[1] for each in pieces) + piece.scores.shape[1] <= MOST_ITEMS or not pieces:
                pieces.append(piece)

    def values(weights: Floats) -> Floats:
        """The metric of every query that has one, (Q,)."""
        metric, protocol = parse_metric(goal.metric), check_protocol(str(goal.protocol))
        each = [ladder_value(p.chunk, weights @ p.scores, metric, p.terms, protocol, highest) for p in pieces]
        every = np.concatenate(each)
        return every[np.isfinite(every)]

    usual = np.array([float(kind in model.usual) for kind in kinds])
    weights = usual / usual.sum()
    if pieces:
        weights = select(weights, values, np.random.default_rng(int(model.seed)))
    return dict(zip(kinds, np.round(weights, DIGITS).tolist(), strict=True))


def select(usual: Floats, values: Callable[[Floats], Floats], draws: np.random.Generator) -> Floats:
    """Weights (kinds,) that add up to 1; ``values`` gives the metric of each query (Q,) for such weights.

    >>> truth = np.array([[1.0, 0.2], [0.9, 0.1], [0.8, 0.1]])  # queries x kinds
    >>> select(np.array([0.5, 0.5]), lambda weights: truth @ weights, np.random.default_rng(0)).tolist()
    [1.0, 0.0]
    """
    known: dict[tuple[float, ...], Floats] = {}

    def value(weights: Floats) -> Floats:
        key = tuple((weights / weights.sum()).tolist())
        if key not in known:
            known[key] = values(np.array(key))
        return known[key]

    plain = value(usual)
    queries = len(plain)
    if not queries or len(usual) == 1:
        return usual
    total, gain, left_out = np.zeros(len(usual)), np.zeros(queries), np.zeros(queries)
    for _ in range(DRAWS):
        drawn = draws.integers(queries, size=queries)
        best = _greedy(value, drawn, len(usual))
        out = np.bincount(drawn, minlength=queries) == 0
        gain[out] += (value(best) - plain)[out]
        left_out += out
        total += best / best.sum()
    gains = gain[left_out > 0] / left_out[left_out > 0]
    share = _certain(gains)
    return np.asarray(share * total / DRAWS + (1.0 - share) * usual)


def _greedy(value: Callable[[Floats], Floats], drawn: Offsets, kinds: int) -> Floats:
    """How often each kind is chosen, up to the best step."""
    counts, best, reached = np.zeros(kinds), np.ones(kinds), -np.inf
    for _ in range(STEPS):
        found = [float(value(counts + one)[drawn].mean()) for one in np.eye(kinds)]
        counts[int(np.argmax(found))] += 1.0
        if max(found) > reached + GAIN:
            best, reached = counts.copy(), max(found)
    return best


def _certain(gains: Floats) -> float:
    """From 0 (no gain) to 1 (a mean gain of ``CERTAIN`` standard errors or more)."""
    if len(gains) < 2 or gains.mean() <= 0.0:
        return 0.0
    error = float(gains.std(ddof=1) / np.sqrt(len(gains)))
    return min(1.0, float(gains.mean()) / max(CERTAIN * error, np.finfo(float).tiny))


def _held_out_task(chunk: Chunk, index: int, payload: tuple[Blend, dict[str, Params], Goal, int]) -> Any:
    model, learned, goal, highest = payload
    scores = np.stack([model.kind_score(chunk, kind, learned) for kind in model.kinds])
    terms = ladder_terms(chunk, parse_metric(goal.metric), check_protocol(str(goal.protocol)), highest)
    return _Piece(scores, chunk.shallow(1), terms)
