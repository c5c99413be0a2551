"""Standings: the fit of one query as a board shows it, with intervals of ranks from all gaps of scores at once.

An interval of a score is that of the number shown: of the gap to the mean over comparisons, or to an anchor, whose own
score is given. Ranks come from gaps. All gaps of two items in a component are judged together: the largest
error of a gap / its standard error stays below ``reach`` in a share ``level`` of draws (normal ones with the fit's
covariance, or the bootstrap's), so with that confidence no item is called better than another wrongly. An item's
rank is then at least 1 + the items that are clearly better and at most n - the items that are clearly worse, for all
items at once (Klein, Wright & Wieczorek 2020; Mogstad, Romano, Shaikh & Wilhelm 2024).

``reach`` is stepped down (Romano & Wolf 2005). For each ordered pair there is a hypothesis that the first item is not
better than the second. A rejected hypothesis needs no guard any more, so the next reach is that of the largest error
over the other ordered pairs, until nothing more is rejected.

The promise is at least ``level`` whatever the strengths. It is met exactly where many items are equally strong; where
strengths lie apart, few gaps are near enough to 0 to be misjudged, and nearly all boards hold.

"Clearly better" is transitive, because standard errors of gaps obey the triangle inequality. So of two items with the
same number of clearly better ones neither is clearly better: items with the same lowest rank form a group in which no
two can be told apart. Cost: items^3, and items^2 for each draw and step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.outcome import ISOLATED
from distagg.models.pairwise.counts import Counts
from distagg.models.pairwise.covariance import covariance, expected
from distagg.models.pairwise.resamples import resample
from distagg.models.pairwise.standings_kernels import largest_gaps
from distagg.types import OFFSET, Bools, Floats, Indices, Labels, Offsets

if TYPE_CHECKING:
    from distagg.models.pairwise.adjusted import AdjustedFit
    from distagg.models.pairwise.model import BradleyTerry
    from distagg.models.pairwise.solver import Pairwise

DRAWS = 2_000  # of the largest error of a gap
MOST_ITEMS = 5_000  # whose gaps are judged together: 2 x 10^10 of them in all draws
JITTER = 1e-12  # of the mean variance: the level of scores, on which no gap depends, may have none


@dataclass(frozen=True, slots=True, eq=False)
class Standings:
    """n items of one query, in the order of their chunk; scores and intervals on the model's log scale."""

    score: Floats  # (n,)
    deviation: Floats  # (n,) of the number shown
    low: Floats  # (n,)
    high: Floats  # (n,)
    rank_low: Offsets  # (n,) among the items that are kept, as the next; the others' mean nothing
    rank_high: Offsets  # (n,)
    status: Labels  # (n,) codes of STATUS
    component: Labels  # (n,)
    chance: Floats  # (n, n) to win, plus half the chance of a tie; NaN between components
    spread: Floats  # (n, n) covariance of the errors of scores
    reach: float  # standard errors of a gap beyond which an item is clearly better
    fit: dict[str, Any]  # how the fit ended


class Judged(NamedTuple):
    """How to judge: the items on the board (I,), the item of each query whose score is given (Q,), -1 for none."""

    kept: Bools
    anchor: Indices


class Fitted(NamedTuple):
    """Scores of one query's n items with their joint uncertainty."""

    score: Floats  # (n,)
    component: Labels  # (n,)
    status: Labels  # (n,)
    spread: Floats  # (n, n) covariance of their errors
    errors: Floats | None  # (resamples, n) of a bootstrap


class Ending(NamedTuple):
    """What else a fit of one query knows."""

    compared: Floats  # (n,) comparisons of every item
    eta: float  # tie parameter
    prior: float  # deviation of the prior
    ended: dict[str, Any]  # columns of the fit


def counted_fits(model: Pairwise, chunk: Chunk, counts: Counts, *, split: bool) -> list[tuple[Fitted, Ending]]:
    """The fit of every query of a chunk from pair counts; ``split``: the chunk does not have all pairs."""
    graph = model.examine(counts)
    if model.prior == "none":
        model.refuse_endless(chunk, graph, split=split)
    outcome, eta = model.fitted(counts, graph)
    draws = None
    if model.errors == "bootstrap":
        if split:
            raise UsageError(f"{model.name}: errors=bootstrap needs whole queries; choose errors=standard")
        draws = resample(model, chunk, counts, graph, outcome, eta)[0]
    terms, fits = model.terms(outcome), []
    for q in range(chunk.n_queries):
        items = slice(int(chunk.item_offsets[q]), int(chunk.item_offsets[q + 1]))
        own, score = graph.component[items], outcome.score[items]
        errors = None if draws is None else draws[:, items] - score
        if errors is None:
            spread = covariance(counts, q, own, score, float(eta[q]), terms)
        else:
            spread = np.cov(errors, rowvar=False).reshape(len(own), len(own))
        prior = float(model.prior_deviation(terms.weight[[q]])[0])
        ended = {name: column[q].item() for name, column in outcome.queries.items()}
        fit = Fitted(score, own, graph.status[items], spread, errors)
        fits.append((fit, Ending((counts.won + counts.lost)[items], float(eta[q]), prior, ended)))
    return fits


def adjusted_fit(model: BradleyTerry, query: Chunk, fit: AdjustedFit) -> tuple[Fitted, Ending]:
    """The fit of one query with covariates."""
    outcome, size, counts = fit.outcome(model, query, trace=False), fit.problem.size, fit.problem.counts
    spread = fit.covariance(model)[:size, :size]
    prior = float(model.prior_deviation(np.array([fit.weight]))[0])
    ended = {name: column[0] for name, column in outcome.queries.items()}
    ended = {name: value.item() if isinstance(value, np.generic) else value for name, value in ended.items()}
    fitted = Fitted(outcome.score, outcome.items["component"], outcome.items["status"], spread, None)
    return fitted, Ending(counts.won + counts.lost, 0.0, prior, ended)


def standings(model: Pairwise, chunk: Chunk, fits: Sequence[tuple[Fitted, Ending]], judged: Judged) -> list[Standings]:
    """The standings of every query of a chunk, from its fits."""
    result = []
    for q, (fit, ending) in enumerate(fits):
        items = slice(int(chunk.item_offsets[q]), int(chunk.item_offsets[q + 1]))
        share = reference(fit.component, ending.compared, int(judged.anchor[q]))
        deviation, low, high = shown_intervals(fit, share, ending.prior, model.level)
        seed = np.random.SeedSequence([model.seed, int(chunk.positions[q])])
        rank_low, rank_high, reach = rank_bounds(fit, judged.kept[items], model.level, seed)
        chance = expected(model.link, fit.score[:, None] - fit.score, ending.eta)
        chance[fit.component[:, None] != fit.component] = np.nan
        result.append(
            Standings(
                score=fit.score,
                deviation=deviation,
                low=low,
                high=high,
                rank_low=rank_low,
                rank_high=rank_high,
                status=fit.status,
                component=fit.component,
                chance=chance,
                spread=fit.spread,
                reach=reach,
                fit=ending.ended,
            )
        )
    return result


def reference(component: Labels, compared: Floats, anchor: int) -> Floats:  # (n,)
    """What scores are measured from: the share of each item in its component's mean, by comparisons, or the anchor."""
    total = np.bincount(component, compared)[component]
    share = np.where(total > 0.0, compared, 1.0) / np.where(total > 0.0, total, np.bincount(component)[component])
    if anchor >= 0:
        share[component == component[anchor]] = 0.0
        share[anchor] = 1.0
    return np.asarray(share)


def shown_intervals(fit: Fitted, share: Floats, prior: float, level: float) -> tuple[Floats, Floats, Floats]:
    """Deviation, low and high of every score about its reference; what nothing is known of has the prior's deviation.

    Normal intervals, or quantiles of bootstrap draws between which a further draw lies with this probability.
    """
    deviation, tail = np.zeros(len(fit.score)), 0.5 - level / 2
    ends = np.zeros((2, len(fit.score)))
    for part in range(int(fit.component.max(initial=-1)) + 1):
        rows = np.flatnonzero(fit.component == part)
        block, own = fit.spread[np.ix_(rows, rows)], share[rows]
        variance = np.diagonal(block) - 2.0 * block @ own + own @ block @ own
        deviation[rows] = np.sqrt(np.where(own == 1.0, 0.0, np.maximum(variance, 0.0)))
        if fit.errors is not None:
            seen = fit.errors[:, rows] - (fit.errors[:, rows] @ own)[:, None]
            ends[:, rows] = np.quantile(seen, [tail, 1.0 - tail], axis=0, method="weibull")
    alone = fit.status == ISOLATED
    deviation[alone] = prior
    if fit.errors is None or alone.any():
        normal = NormalDist().inv_cdf(1.0 - tail) * deviation
        ends = np.where(alone | (fit.errors is None), [-normal, normal], ends)
    return deviation, fit.score + ends[0], fit.score + ends[1]


def rank_bounds(
    fit: Fitted, kept: Bools, level: float, seed: np.random.SeedSequence
) -> tuple[Offsets, Offsets, float]:  # (n,), (n,), reach
    """The lowest and highest rank of every item among those that are kept, for all of them at once, and the reach."""
    rows = np.flatnonzero(kept)
    size = len(rows)
    if size > MOST_ITEMS:
        raise UsageError(
            f"a board judges all gaps of its items together: found {size:,} items, expected at most {MOST_ITEMS:,}; "
            "leave out the items with few battles (--min-battles N)"
        )
    spread = fit.spread[np.ix_(rows, rows)]
    steadiness = inverse_errors(spread, fit.component[rows])
    if fit.errors is None:
        scale = max(float(np.diagonal(spread).mean()) if size else 0.0, np.finfo(float).tiny)
        root = np.linalg.cholesky(spread + JITTER * scale * np.eye(size))
        errors = np.random.default_rng(seed).normal(size=(DRAWS, size)) @ root.T
    else:
        errors = fit.errors[:, rows]
    gaps = (fit.score[rows][:, None] - fit.score[rows]) * steadiness  # [i, j]: of i above j, in standard errors
    reach = stepped_reach(gaps, np.ascontiguousarray(errors), steadiness, level) if size > 1 else 0.0
    better = gaps > reach
    rank_low, rank_high = np.ones(len(kept), dtype=OFFSET), np.full(len(kept), size, dtype=OFFSET)
    rank_low[rows] += better.sum(axis=0)
    rank_high[rows] -= better.sum(axis=1)
    return rank_low, rank_high, reach


def stepped_reach(gaps: Floats, errors: Floats, steadiness: Floats, level: float) -> float:
    """The reach of gaps (n, n), all judged at once and stepped down, from draws of errors (draws, n)."""
    guarded = steadiness.copy()  # 0 for the ordered pairs whose first item is clearly better
    largest = np.full(len(errors), np.inf)
    tail = len(errors) - int((len(errors) - 1) * level)  # draws at and above the quantile
    while True:
        largest = lowered(largest, errors, guarded, tail)
        reach = float(np.quantile(largest, level))
        rejected = (gaps > reach) & (guarded > 0.0)
        if not rejected.any():
            return reach
        guarded[rejected] = 0.0


def lowered(bounds: Floats, errors: Floats, guarded: Floats, tail: int) -> Floats:
    """The largest gap of every draw over the guarded pairs, given upper bounds of them (draws,).

    The ``tail`` largest are exact; a draw that is not among them may keep its bound.
    """
    largest, lower, order = bounds.copy(), np.ascontiguousarray(guarded.T), np.argsort(-bounds, kind="stable")
    for start in range(0, len(order), tail):
        some, rest = order[start : start + tail], order[start + tail :]
        largest[some] = largest_gaps(errors[some], guarded, lower)
        if len(rest) and np.partition(largest[order[: start + tail]], -tail)[-tail] >= bounds[rest[0]]:
            break
    return largest


def inverse_errors(spread: Floats, component: Labels) -> Floats:  # (n, n), (n,) -> (n, n)
    """One over the standard error of every gap, 0 where nothing is known of it."""
    own = np.diagonal(spread)
    variance = own[:, None] + own - 2.0 * spread
    known = (component[:, None] == component) & (variance > 0.0)
    np.fill_diagonal(known, False)
    return np.asarray(np.divide(1.0, np.sqrt(np.maximum(variance, 0.0)), out=np.zeros_like(spread), where=known))
