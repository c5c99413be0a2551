"""Scores and the reliabilities of experts together, by L-BFGS in rounds of map and reduce.

The driver holds all scores and all parameters of experts; a round computes the gradient of every chunk at them.
Gradients of scores are concatenated where chunks hold whole queries, and added up where the chunks share one split
query. The first round counts votes, for the start; the last one, where reliabilities were learned, is for their
standard errors (``information``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import not_converged
from distagg.models.crowd.information import MOST_ITEMS, MOST_VOTES, Information, covariance
from distagg.models.crowd.kernels import (
    PLACES,
    SUMS,
    Mixture,
    Prior,
    add_prior,
    longest_step,
    mixture_slopes,
)
from distagg.models.crowd.layout import PART, Layout, joined
from distagg.models.crowd.votes import wins_and_losses
from distagg.models.pairwise.kernels import CHANGES, SETTLED
from distagg.models.pairwise.routes import SOUGHT, _sought
from distagg.models.rounds import Gathered, Params, Stage, Statistics
from distagg.optimise.convergence import Ended
from distagg.optimise.lbfgs import BY_VALUE, Bracket, Path, Search, aim, begin, first_search, is_lost, judge
from distagg.types import Floats

if TYPE_CHECKING:
    from distagg.models.crowd.model import Crowd

CENSUS, CLIMB, ERRORS = 0, 1, 2


@dataclass(frozen=True, slots=True, eq=False)
class Slopes(Stage):
    """What a worker computes in a round of the climb: the gradient of a chunk."""

    model: Crowd
    layout: Layout
    mixture: Mixture
    score: Floats
    learns: bool

    def map(self, chunk: Chunk) -> Statistics:
        rows, votes = self.layout.rows(chunk), self.model.votes(chunk)
        slope, curve = np.zeros(rows.stop - rows.start), np.zeros(rows.stop - rows.start)
        sums = np.zeros((chunk.n_experts if self.learns else 0, PLACES, SUMS))
        score = np.ascontiguousarray(self.score[rows])
        value, agreed = mixture_slopes(votes, 0, len(votes.winner), self.mixture, score, slope, curve, sums)
        key = self.layout.key
        return {key("slope"): slope, key("curve"): curve, "sums": sums, "value": np.array([value, agreed])}


@dataclass(frozen=True, slots=True, eq=False)
class CrowdRound(Stage):
    """A round of the joint fit; with ``fixed``, the parameters of experts are given, and only scores are fitted."""

    model: Crowd
    given: Params  # parameters of experts, where they are fixed
    fixed: bool
    phase: int
    layout: Layout
    votes: Floats  # (experts,) decisive votes
    cast: float  # the number of all votes
    compared: Floats  # (items,) comparisons
    scale: Floats  # (x,) deviations, in whose units steps are taken
    path: Path
    search: Search
    weight: float  # of the prior of scores
    changes: int  # of the weight that may follow
    steps: int
    left: float  # the longest step that any number alone would still take
    turned: bool  # whether the mirror image was taken already

    @classmethod
    def begin(cls, model: Crowd, experts: int, given: Params, *, fixed: bool, split: bool) -> CrowdRound:
        """The census."""
        none = np.zeros(0)
        layout = Layout(split, np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
        weight = float(given["weight"][0]) if fixed else model.given_weight
        changes = 0 if fixed or not model.seeks else CHANGES
        votes, search = np.zeros(experts), first_search(BY_VALUE)
        return cls(
            model, given, fixed, CENSUS, layout, votes, 0.0, none, none, begin(none), search, weight, changes, 0,
            np.inf, False,
        )  # fmt: skip

    @property
    def x(self) -> Floats:
        """The scores, then the parameters of experts, at which the next gradient is wanted."""
        result: Floats = self.scale * self.path.trial
        return result

    @property
    def items(self) -> int:
        return len(self.compared)

    def sent(self) -> Stage:
        if self.phase == CENSUS:
            return replace(self, votes=np.zeros(0), given={})
        if self.phase == ERRORS:
            x = self.scale * self.path.x
            return Information(self.model, self.layout, x[self.items :], x[: self.items], self.coupled)
        x = self.x
        mixture = self.model.given_mixture(self.given) if self.fixed else self.model.mixture(x[self.items :])
        return Slopes(self.model, self.layout, mixture, x[: self.items], not self.fixed)

    @property
    def coupled(self) -> bool:
        """Whether standard errors take those of the scores into account."""
        return self.items <= MOST_ITEMS and self.cast <= MOST_VOTES

    def map(self, chunk: Chunk) -> Statistics:
        """The census of a chunk."""
        votes, key = self.model.votes(chunk), self.layout.key
        won, lost = wins_and_losses(votes, chunk.n_items)
        return {
            PART + "position": chunk.positions,
            PART + "size": np.diff(chunk.item_offsets),
            key("won"): won,
            key("lost"): lost,
            "votes": votes.decided,
            "cast": np.array([float(len(votes.winner))]),
        }

    @staticmethod
    def reduce(a: Statistics, b: Statistics) -> Statistics:
        return joined(a, b)

    def finish(self, statistics: Statistics) -> Any:
        if self.phase == CENSUS:
            return self._start(statistics)
        return self._climbed(statistics) if self.phase == CLIMB else self._learned(statistics)

    def _start(self, counted: Statistics) -> CrowdRound:
        """Scores start at the log odds of winning, and experts at their prior: the majority of votes is followed."""
        split = self.layout.split
        positions = counted[PART + "position"]
        if not split and len(np.unique(positions)) < len(positions):
            raise UsageError(f"{self.model.name} learns without labels and takes no validation data; omit them")
        starts = np.concatenate([[0], np.cumsum(counted[PART + "size"])]).astype(np.int64)
        won, lost = counted[self.layout.key("won")], counted[self.layout.key("lost")]
        score = np.log((won + 0.5) / (lost + 0.5))
        x = score if self.fixed else np.concatenate([score, self.model.first(len(self.votes))])
        return replace(
            self,
            phase=CLIMB,
            layout=Layout(split, positions, starts),
            votes=counted["votes"],
            cast=float(counted["cast"][0]),
            compared=won + lost,
            scale=np.ones(len(x)),
            path=begin(x),
        )

    def _climbed(self, statistics: Statistics) -> Any:
        """The next trial; or, after convergence, the round of standard errors or the result."""
        model, x = self.model, self.x
        value, uphill, curve = self._slopes(statistics)
        path, scale = Path(*(array.copy() for array in self.path)), self.scale
        if self.search.steps < 0:  # from here on in units of deviations
            scale = 1.0 / np.sqrt(np.where(curve > 0.0, curve, 1.0))
            path.x[:] = path.trial[:] = x / scale
        search = judge(path, self.search, -value, -uphill * scale)
        ahead = replace(self, path=path, search=search, scale=scale)
        if search.tried:
            return ahead._ended() if is_lost(search) else ahead
        ahead = replace(ahead, steps=self.steps + (search.steps > 0), left=float(longest_step(uphill, curve)))
        over = ahead.steps >= model.steps
        if ahead.left <= SOUGHT and self._mirrored(statistics):
            return replace(ahead._again(-x, self.weight), turned=True)
        if self.changes and (ahead.left <= max(SOUGHT, model.tolerance) or over):
            sought = _sought(x[: self.items], statistics[self.layout.key("curve")], self.weight)
            settled = over or abs(sought - self.weight) <= SETTLED * self.weight
            return replace(ahead._again(x, sought), changes=0 if settled else self.changes - 1)
        if ahead.left <= model.tolerance or over:
            return ahead._ended()
        return replace(ahead, search=aim(path, search))

    def _slopes(self, statistics: Statistics) -> tuple[float, Floats, Floats]:
        """The log posterior at x but for a constant, its gradient, and a positive curvature of each number alone."""
        x, items, key = self.x, self.items, self.layout.key
        uphill, curve = statistics[key("slope")].copy(), statistics[key("curve")].copy()
        value = float(statistics["value"][0])
        value += add_prior(Prior(self.model.prior_kind, self.weight), x[:items].copy(), uphill, curve)
        if self.fixed:
            return value, uphill, curve
        said, slope, bend = self.model.expert_slopes(x[items:], statistics["sums"])
        return value + said, np.concatenate([uphill, slope]), np.concatenate([curve, bend])

    def _mirrored(self, statistics: Statistics) -> bool:
        """Whether most votes disagree with the scores, so that the mirror image is wanted."""
        possible = self.model.mirrored and not self.fixed and not self.turned
        return possible and float(statistics["value"][1]) < 0.0

    def _again(self, x: Floats, weight: float) -> CrowdRound:
        """A new climb from x."""
        search = first_search(BY_VALUE)
        return replace(self, scale=np.ones(len(x)), path=begin(x.copy()), search=search, weight=weight)

    def _ended(self) -> Any:
        if not self.fixed:
            if self.left > self.model.tolerance:
                not_converged(
                    f"{self.model.name}: reliabilities not converged after {self.steps} steps "
                    f"({self.model.criterion}; worst {self.left:.1e}); {self.model.remedy}"
                )
            return replace(self, phase=ERRORS)
        ended = Ended(np.array([self.steps]), np.array([self.left]), np.array([-self.search.value]), np.zeros((1, 0)))
        return Gathered(self.given, CrowdFit(self.scale * self.path.x, self.compared, ended))

    def _learned(self, statistics: Statistics) -> Params:
        x, items, curve = self.scale * self.path.x, self.items, np.zeros(self.items)
        add_prior(Prior(self.model.prior_kind, self.weight), x[:items].copy(), np.zeros(items), curve)
        variance = covariance(statistics, self.model.prior_information(x[items:]), curve)
        learned = self.model.learned_params(x[items:], np.sqrt(np.diagonal(variance, axis1=1, axis2=2)))
        numbers = {"weight": np.array([self.weight]), "steps": np.array([float(self.steps)])}
        return {**learned, "expert_votes": self.votes, **numbers}

    def state(self) -> dict[str, np.ndarray]:
        search = [*self.search[:-1], *self.search.bracket]
        numbers = [self.phase, self.cast, self.weight, self.changes, self.steps, self.left, self.turned]
        arrays = {f"path {name}": array for name, array in self.path._asdict().items()}
        return {
            **arrays,
            "positions": self.layout.positions,
            "starts": self.layout.starts,
            "votes": self.votes,
            "compared": self.compared,
            "scale": self.scale,
            "search": np.array(search, dtype=np.float64),
            "numbers": np.array(numbers, dtype=np.float64),
        }

    def resumed(self, state: dict[str, np.ndarray]) -> CrowdRound:
        rule, steps, pairs, tried, value, slope, length, *bracket = state["search"].tolist()
        phase, cast, weight, changes, taken, left, turned = state["numbers"].tolist()
        positions, starts = (state[name].astype(np.int64) for name in ("positions", "starts"))
        return replace(
            self,
            phase=int(phase),
            layout=Layout(self.layout.split, positions, starts),
            votes=state["votes"],
            cast=cast,
            compared=state["compared"],
            scale=state["scale"],
            path=Path(*(np.array(state[f"path {name}"]) for name in Path._fields)),
            search=Search(int(rule), int(steps), int(pairs), int(tried), value, slope, length, Bracket(*bracket)),
            weight=weight,
            changes=int(changes),
            steps=int(taken),
            left=left,
            turned=bool(turned),
        )


@dataclass(frozen=True, slots=True, eq=False)
class CrowdFit:
    """The scores of a split query, its experts given."""

    score: Floats
    compared: Floats
    ended: Ended
