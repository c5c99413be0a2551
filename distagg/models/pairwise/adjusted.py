"""bradley_terry with covariates: strengths and coefficients are fitted together, in rounds over chunks.

The logarithm of the odds that i beats j in a battle is s_i - s_j + x'b, where x are the covariates of the battle as
seen from i (``distagg.covariates``). A first round counts pairs and measures the columns; each later one gives the
gradient and the Hessian at one point (``adjusted_kernels``), which add up over chunks, and Newton's method takes a
step. Columns are divided by their root mean square inside. The prior is on strengths only: coefficients have none, so a
column that is a linear combination of strengths and other columns, or that separates winners from losers, is refused.

Rounds are few, because each may have to read all battles again. In the first one a large chunk also fits every
``THINNED``-th of its battles by itself, while it is in memory; the mean of these fits is the start of Newton's method.
A last step so short that its square is far below the tolerance is taken without another round.

Cost: battles x covariates^2 and (items + covariates)^3 a round, of which there are four to eight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import InputError, UsageError
from distagg.models.intervals import between, centred, quasi_variances
from distagg.models.outcome import ISOLATED, Outcome
from distagg.models.pairwise.adjusted_kernels import Battles, Blocks, battle_slopes, measure_columns
from distagg.models.pairwise.counts import Counts, merged
from distagg.models.pairwise.covariance import LEAST_DISPERSION, MOST_ITEMS
from distagg.models.pairwise.kernels import SETTLED
from distagg.models.pairwise.routes import DIGITS, SOUGHT
from distagg.models.rounds import Gathered, Params, Stage, Statistics
from distagg.optimise.convergence import Ended
from distagg.optimise.linear import inverse
from distagg.optimise.newton import NewtonAscent
from distagg.types import Floats, Indices, Offsets

if TYPE_CHECKING:
    from distagg.models.pairwise.model import BradleyTerry

COLLINEAR = 1e-9  # a column's curvature given all before it, relative to its own
SEPARATED = 1e-6  # the same, relative to that at the start
THINNED = 8  # a chunk's own fit takes one battle in so many
LARGE = 1 << 17  # battles of a chunk that has a fit of its own
NEAR = 1e-2  # a step so short ends it
SHORT = 1e3  # Newton's method leaves no more than this x the square of its last step
COEFFICIENT_COLUMNS = ("covariate", "coefficient", "error")  # lists in a fit's row


@dataclass(frozen=True, slots=True, eq=False)
class Survey(Stage):
    """The first round: pair counts, and the size and signs of every column."""

    model: BradleyTerry
    params: Params

    def map(self, chunk: Chunk) -> Statistics:
        if not chunk.covariate_names:
            raise UsageError(f"{self.model.name}: the pairs have no covariates; fit it with rank, solve or fit")
        counts = self.model.counting(chunk).count(chunk).directed()
        squares, low, high = (np.zeros(len(chunk.covariate_names)) for _ in range(3))
        counted = measure_columns(battles_of(chunk), self.model.tie_share, squares, low, high)
        bounds = {"low": low, "high": high, "squares": squares, "counted": np.array([counted])}
        held, pulled = own_fit(self.model, chunk, counts, np.sqrt(squares / max(counted, 1.0)))
        bounds |= {"held": held, "pulled": pulled}
        return {**counts, **bounds, "items": np.array([chunk.n_items]), "names": np.array(chunk.covariate_names)}

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        added = {name: a[name] + b[name] for name in ("squares", "counted", "held", "pulled")}
        bounds = {"low": np.minimum(a["low"], b["low"]), "high": np.maximum(a["high"], b["high"])}
        counts = merged(int(a["items"][0]), [a, b]).directed()
        return {**counts, **added, **bounds, "items": a["items"], "names": a["names"]}

    def finish(self, statistics: Statistics) -> NewtonRound | Gathered:
        model, names = self.model, tuple(str(name) for name in statistics["names"])
        items = int(statistics["items"][0])
        if items > MOST_ITEMS:
            raise UsageError(
                f"{model.name}: covariates need a matrix of {items:,} x {items:,} items; {MOST_ITEMS:,} are the most"
            )
        _refuse_columns(names, statistics)
        counts = merged(items, [statistics])
        graph = model.examine(counts)
        size = np.sqrt(statistics["squares"] / statistics["counted"][0])
        problem = Problem(self.params, names, 1.0 / size, counts, graph.component)
        start = np.concatenate([np.log((counts.won + 0.5) / (counts.lost + 0.5)), np.zeros(len(names))])
        held, pulled = statistics["held"], statistics["pulled"]
        if held.any():
            unit = np.concatenate([np.ones(items), size])
            start = np.where(held > 0.0, unit * pulled / np.where(held > 0.0, held, 1.0), start)
        if model.prior == "none" and graph.strong[0] != (graph.connected[0] if model.components else 1):
            return Gathered(self.params, AdjustedFit(problem, start, model.given_weight, 0, np.inf, None))  # is refused
        return NewtonRound(model, problem, NewtonAscent.begin(start), model.given_weight, model.seeks, 0, None)


def own_fit(model: BradleyTerry, chunk: Chunk, counted: Statistics, size: Floats) -> tuple[Floats, Floats]:
    """Curvature, and curvature x point, of a fit of some of the chunk's battles; both (M + K,), 0 in a small chunk.

    A prior of weight 1 keeps every number finite. It is a start only: nothing is refused here.
    """
    items, names = chunk.n_items, chunk.covariate_names
    held, pulled = np.zeros((2, items + len(names)))
    columns, battles = len(names) ** 2, chunk.n_pairs // THINNED
    if chunk.n_pairs < LARGE or not size.all() or battles * columns < (items + len(names)) ** 3:
        return held, pulled
    some = chunk.keep_pairs(np.arange(chunk.n_pairs) % THINNED == 0)
    counts = merged(items, [counted])
    problem = Problem({}, names, 1.0 / size, counts, np.zeros(items, dtype=np.int32))
    ascent = NewtonAscent.begin(np.zeros(items + len(names)))
    for _ in range(model.steps):
        point = ascent.trial
        score, coefficient = point[:items].copy(), point[items:].copy()
        sums = sums_of(battles_of(some), model.tie_share, score, coefficient, 1.0 / size, counts.offsets, counts.other)
        curvature = problem.hessian(sums) + np.eye(len(point))
        value = -float(sums["value"][0]) - 0.5 * float((point * point).sum())
        ascent = ascent.after(value, -sums["slope"] - point, curvature)
        if np.abs(ascent.step).max() < NEAR:
            break
    held = np.diagonal(curvature).copy()
    unit = np.concatenate([np.ones(items), 1.0 / size])
    return held, held * unit * ascent.trial


def _refuse_columns(names: tuple[str, ...], measured: Statistics) -> None:
    """Refuse columns that are constant, or that separate winners from losers by themselves."""
    for k, name in enumerate(names):
        low, high = float(measured["low"][k]), float(measured["high"][k])
        if measured["squares"][k] == 0.0:
            raise _refused(name, "0 in every battle", "values that differ between the sides")
        if low == 0.0 or high == 0.0:
            side = "lower" if low == 0.0 else "higher"
            raise _refused(
                name,
                f"winners whose value is never {side} than the loser's, so that it separates winners from losers",
                "battles won by either side of it; no finite coefficient is the most likely",
            )


def _refused(name: str, found: str, expected: str) -> InputError:
    return InputError(f"covariate {name}", found=found, expected=expected, remedy="leave it out of covariates")


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What stays the same in all rounds. M items, E distinct pairs, K covariates."""

    params: Params
    names: tuple[str, ...]  # (K,)
    scale: Floats  # (K,) by which columns are multiplied
    counts: Counts
    component: Indices  # (M,)

    @property
    def size(self) -> int:
        return len(self.component)

    def hessian(self, sums: Statistics) -> Floats:  # (M + K, M + K)
        """Second derivatives of minus the log likelihood."""
        size = self.size
        low = np.repeat(np.arange(size), np.diff(self.counts.offsets))
        matrix = np.zeros((size + len(self.names),) * 2)
        matrix[low, self.counts.other] = matrix[self.counts.other, low] = -sums["curve"]
        matrix[np.arange(size), np.arange(size)] = -matrix[:size, :size].sum(axis=1)
        matrix[:size, size:] = sums["cross"]
        matrix[size:, :size] = sums["cross"].T
        matrix[size:, size:] = 0.5 * (sums["square"] + sums["square"].T)
        return matrix

    def fixed(self, hessian: Floats) -> Floats:
        """The matrix with the level of every connected component fixed, because battles do not determine it."""
        size = self.size
        members = np.zeros((size, int(self.component.max(initial=0)) + 1))
        members[np.arange(size), self.component] = 1.0
        members /= members.sum(axis=0)
        level = np.diagonal(hessian)[:size].mean() + 1.0
        hessian[:size, :size] += level * size * members @ members.T
        return hessian

    def own_curvature(self, hessian: Floats) -> Floats:  # (K,)
        """The curvature of each covariate, given the strengths and the covariates before it."""
        size = self.size
        matrix = self.fixed(hessian.copy())
        cross = matrix[:size, size:]
        rest = matrix[size:, size:] - cross.T @ np.linalg.solve(matrix[:size, :size], cross)
        pivots = np.empty(len(self.names))
        for k in range(len(pivots)):  # elimination, one column after the other
            pivots[k] = rest[k, k]
            if pivots[k] > COLLINEAR * hessian[size + k, size + k]:
                rest = rest - np.outer(rest[:, k], rest[k]) / pivots[k]
        return pivots


@dataclass(frozen=True, slots=True, eq=False)
class BattleSlopes(Stage):
    """The task of a worker: value, gradient and Hessian of a chunk's battles at one point."""

    model: BradleyTerry
    score: Floats  # (M,)
    coefficient: Floats  # (K,) of scaled columns
    scale: Floats  # (K,)
    offsets: Offsets
    other: Indices

    def map(self, chunk: Chunk) -> Statistics:
        point = (self.score, self.coefficient, self.scale)
        return sums_of(battles_of(chunk), self.model.tie_share, *point, self.offsets, self.other)


def sums_of(
    battles: Battles,
    share: float,
    score: Floats,
    coefficient: Floats,
    scale: Floats,
    offsets: Offsets,
    other: Indices,
) -> Statistics:
    """The blocks of battles at one point, see ``battle_slopes``."""
    size, count = len(score), len(coefficient)
    shapes = ((size + count,), (len(other),), (size, count), (count, count), (1,))
    sums = Blocks(*(np.zeros(shape) for shape in shapes))
    battle_slopes(battles, share, score, coefficient, scale, offsets, other, sums)
    return sums._asdict()


def battles_of(chunk: Chunk) -> Battles:
    """The battles of one query, as kernels take them."""
    return Battles(chunk.pair_winner, chunk.pair_loser, chunk.pair_weight, chunk.pair_tie, chunk.pair_covariates)


@dataclass(frozen=True, slots=True, eq=False)
class NewtonRound(Stage):
    """One evaluation for Newton's method; where the weight of the prior is sought, it changes between steps."""

    model: BradleyTerry
    problem: Problem
    ascent: NewtonAscent
    weight: float  # of the prior
    seeking: bool
    steps: int
    first: Floats | None  # (K,) curvature of the covariates at the start

    def sent(self) -> BattleSlopes:
        size, counts = self.problem.size, self.problem.counts
        point = self.ascent.trial
        return BattleSlopes(
            self.model, point[:size].copy(), point[size:].copy(), self.problem.scale, counts.offsets, counts.other
        )

    def finish(self, statistics: Statistics) -> NewtonRound | Gathered:
        model, problem, size = self.model, self.problem, self.problem.size
        point, hessian = self.ascent.trial, problem.hessian(statistics)
        first = self.first
        if first is None:
            first = problem.own_curvature(hessian)
            _refuse_collinear(problem, hessian, first)
        weight, seeking, ascent = self.weight, self.seeking, self.ascent
        if seeking:
            sought = _sought(point[:size], np.diagonal(hessian)[:size], weight)
            value, downhill, curvature = self._penalised(statistics, hessian, sought)
            left = _longest(downhill, curvature, sought, size)
            seeking = abs(sought - weight) > SETTLED * weight or left > max(SOUGHT, model.tolerance)
            weight, ascent = sought, NewtonAscent.begin(point)
        else:
            value, downhill, curvature = self._penalised(statistics, hessian, weight)
            left = _longest(downhill, curvature, weight, size)
        ascent = ascent.after(-value, -downhill, curvature)
        accepted = ascent.x is point
        steps = self.steps + accepted
        if accepted:
            self._refuse_separated(point, hessian, first)
        if (accepted and left <= model.tolerance and not seeking) or steps > model.steps or _stuck(ascent):
            return Gathered(problem.params, AdjustedFit(problem, point, weight, steps - 1, left, statistics))
        step = ascent.step
        rest = SHORT * float(np.abs(step).max(initial=0.0)) ** 2
        if accepted and rest <= model.tolerance and not seeking:
            after = statistics["value"] + step @ (statistics["slope"] + 0.5 * hessian @ step)
            fit = AdjustedFit(problem, ascent.trial, weight, steps, rest, {**statistics, "value": after})
            return Gathered(problem.params, fit)
        return NewtonRound(model, problem, ascent, weight, seeking, steps, first)

    def _penalised(self, sums: Statistics, hessian: Floats, weight: float) -> tuple[float, Floats, Floats]:
        """Value, gradient and Hessian of what is minimised; without a prior the level of scores is fixed."""
        size, point = self.problem.size, self.ascent.trial
        value, slope = float(sums["value"][0]), sums["slope"].copy()
        if self.model.prior == "none":
            return value, slope, self.problem.fixed(hessian.copy())
        matrix = hessian.copy()
        matrix[np.arange(size), np.arange(size)] += weight
        slope[:size] += weight * point[:size]
        return value + 0.5 * weight * float((point[:size] ** 2).sum()), slope, matrix

    def _refuse_separated(self, point: Floats, hessian: Floats, first: Floats) -> None:
        """Refuse covariates that together separate winners from losers: their curvature vanishes on the way."""
        now = self.problem.own_curvature(hessian)
        if (now < SEPARATED * first).any():
            far = int(np.argmax(np.abs(point[self.problem.size :])))
            raise _refused(
                self.problem.names[far],
                "a coefficient that grows without end: the covariates separate winners from losers",
                "battles won by either side; no finite coefficient is the most likely",
            )


def _sought(score: Floats, curve: Floats, weight: float) -> float:
    """The most likely weight of the prior, given the scores and the curvature of the data; see ``kernels``."""
    return float((1.0 + (curve / (curve + weight)).sum()) / (1.0 + (score * score).sum()))


def _longest(downhill: Floats, curvature: Floats, weight: float, size: int) -> float:
    """The longest step that any score or (scaled) coefficient alone would take."""
    own = np.diagonal(curvature)
    return float(np.max(np.abs(downhill) / np.maximum(own, np.finfo(float).tiny), initial=0.0))


def _stuck(ascent: NewtonAscent) -> bool:
    """Whether steps are halved so often that nothing moves."""
    return bool(np.abs(ascent.step).max(initial=0.0) < 1e-15)


def _refuse_collinear(problem: Problem, hessian: Floats, pivots: Floats) -> None:
    """Refuse a column that is a linear combination of the strengths and the columns before it."""
    size = problem.size
    for k in np.flatnonzero(pivots <= COLLINEAR * np.diagonal(hessian)[size:]):
        one = Problem(
            problem.params, problem.names[k : k + 1], problem.scale[k : k + 1], problem.counts, problem.component
        )
        rows = np.append(np.arange(size), size + k)
        alone = one.own_curvature(hessian[np.ix_(rows, rows)])[0] <= COLLINEAR * hessian[size + k, size + k]
        others = ", ".join(problem.names[:k])
        found = "the same value for an item in all its battles" if alone else f"a combination of {others} and the items"
        raise _refused(problem.names[k], found, "a column that varies on its own")


@dataclass(frozen=True, slots=True, eq=False)
class AdjustedFit:
    """The end of the rounds: strengths and coefficients of one query."""

    problem: Problem
    point: Floats  # (M + K,)
    weight: float
    steps: int
    left: float
    sums: Statistics | None  # at the point; None if there is no finite fit, which is refused where names are known

    def outcome(self, model: BradleyTerry, chunk: Chunk, *, trace: bool) -> Outcome:
        problem, size = self.problem, self.problem.size
        graph = model.examine(problem.counts)
        if model.prior == "none":
            model.refuse_endless(chunk, graph, split=True)
        assert self.sums is not None
        compared = problem.counts.won + problem.counts.lost
        score = np.round(centred(self.point[:size], problem.component, compared), DIGITS) + 0.0
        likelihood = -self.sums["value"]
        ended = Ended(np.array([self.steps]), np.array([self.left]), likelihood, np.zeros((1, 0)))
        fit: dict[str, Any] = ended.columns(model.tolerance)
        if model.prior == "gaussian":
            fit["weight"] = np.array([self.weight])
        covariance = self.covariance(model)
        unit, own = problem.scale, np.diagonal(covariance)[size:]
        fit["covariate"] = [list(problem.names)]
        fit["coefficient"] = [(self.point[size:] * unit).tolist()]
        fit["error"] = [(np.sqrt(np.maximum(own, 0.0)) * unit).tolist()]
        items: dict[str, np.ndarray] = {}
        if model.errors == "standard":
            items |= between(score, self._deviation(model, graph.status, covariance), model.level)
        items |= {"status": graph.status, "component": graph.component}
        return Outcome(score, items, fit)

    def _deviation(self, model: BradleyTerry, status: Indices, covariance: Floats) -> Floats:
        deviation = np.empty(self.problem.size)
        for part in range(int(self.problem.component.max(initial=0)) + 1):
            rows = np.flatnonzero(self.problem.component == part)
            deviation[rows] = np.sqrt(quasi_variances(covariance[np.ix_(rows, rows)].copy()))
        alone = np.flatnonzero(status == ISOLATED)
        deviation[alone] = model.prior_deviation(np.full(len(alone), self.weight))
        return deviation

    def covariance(self, model: BradleyTerry) -> Floats:  # (M + K, M + K)
        """The covariance of scores and scaled coefficients: the inverse of the curvature.

        As without covariates, ties that count as half a win vary less than wins, and a weight of the prior that was
        learned is not known for sure.
        """
        assert self.sums is not None
        problem, size = self.problem, self.problem.size
        hessian = problem.hessian(self.sums)
        curve, weight = np.diagonal(hessian)[:size].copy(), self.weight if model.prior == "gaussian" else 0.0
        hessian[np.arange(size), np.arange(size)] += weight
        spread = inverse(problem.fixed(hessian))
        dispersion = 1.0
        if model.ties == "half" and problem.counts.ties[0] > 0:
            varied = 4.0 * float(self.sums["curve"].sum())
            dispersion = max(1.0 - float(problem.counts.ties[0]) / varied, LEAST_DISPERSION)
        known = 1.0 + float((curve / np.maximum(curve + weight, np.finfo(float).tiny)).sum())
        wider = known / max(known - 2.0, 1.0) if model.seeks else 1.0
        result = dispersion * spread
        if weight and wider != dispersion:  # einsum, not BLAS, whose last bits depend on its threads
            result += (wider - dispersion) * weight * np.einsum("ij,jk->ik", spread[:, :size], spread[:size])
        if model.seeks:
            score = self.point[:size]
            centre = (np.bincount(problem.component, score) / np.bincount(problem.component))[problem.component]
            moved = weight * np.einsum("ij,j->i", spread[:, :size], score - centre)
            result += 2.0 / known * np.outer(moved, moved)
        return np.asarray(result, dtype=np.float64)


def fit_query(model: BradleyTerry, query: Chunk, params: Params) -> AdjustedFit:
    """The fit of a chunk of one whole query."""
    stage: Any = Survey(model, params)
    while isinstance(stage, Stage):
        stage = stage.finish(stage.sent().map(query))
    fit: AdjustedFit = stage.statistics
    return fit


def fit_whole(model: BradleyTerry, chunk: Chunk, params: Params) -> Outcome:
    """The fit of every query of a chunk, one after the other."""
    outcomes = []
    for q in range(chunk.n_queries):
        query = chunk.select(np.arange(chunk.n_queries) == q)
        outcomes.append(fit_query(model, query, params).outcome(model, query, trace=False))
    items = {name: np.concatenate([each.items[name] for each in outcomes]) for name in model.item_columns}
    fits: dict[str, Any] = {}
    for name in model.query_columns:
        rows = [row for each in outcomes for row in each.queries[name]]
        fits[name] = rows if name in COEFFICIENT_COLUMNS else np.array(rows)
    return Outcome(np.concatenate([each.score for each in outcomes]), items, fits)
