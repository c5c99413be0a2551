"""crowd_bt and noisy_bt: Bradley-Terry strengths from votes of a crowd, with what each annotator is worth.

A vote follows the strengths only with some chance, and that chance belongs to the annotator. Scores and annotators are
fitted together (``joint``). Cost: O(votes) for each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from distagg.covariates import POSITION
from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Solver, param
from distagg.models.crowd.joint import CrowdFit, CrowdRound
from distagg.models.crowd.kernels import (
    FIRST,
    GAUSSIAN,
    PLACES,
    SECOND,
    VIRTUAL,
    Chain,
    Mixture,
    Prior,
    Votes,
    fit_scores,
)
from distagg.models.crowd.votes import votes_of, wins_and_losses
from distagg.models.intervals import centred
from distagg.models.outcome import Outcome
from distagg.models.pairwise.routes import DIGITS
from distagg.models.reliability import reliability_columns
from distagg.models.rounds import Gathered, Params, Stage, Statistics
from distagg.optimise.convergence import FIT_COLUMNS, not_begun
from distagg.types import Floats

PRIORS = {"gaussian": GAUSSIAN, "virtual": VIRTUAL}


def expit(x: Floats) -> Floats:
    """The logistic function of an array."""
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-x)))


def logit(p: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p) - np.log1p(-p))


@dataclass(frozen=True, kw_only=True)
class Crowd(Solver):
    """Base of models whose votes are mixtures (see ``kernels``) with parameters for each expert."""

    cost: ClassVar[str] = "votes x steps"
    inputs: ClassVar[tuple[str, ...]] = ("pairs",)
    additive: ClassVar[bool] = True
    learns_from_parts: ClassVar[bool] = True
    mirrored: ClassVar[bool] = False  # turning all scores and all experts round changes no chance
    criterion: ClassVar[str] = "no score or reliability alone would move by more than tolerance"
    remedy: ClassVar[str] = "raise steps or the weights of the priors"

    ties: str = param("half", "ignore ties, or count half a vote for each side", choices=("half", "ignore"))
    prior: str = param(
        "gaussian",
        "gaussian on scores, or virtual: every item wins and loses against an item of score 0, weight times each",
        choices=tuple(PRIORS),
    )
    weight: float | Literal["auto"] = param(
        "auto",
        "weight of the prior of scores: a number, or auto (gaussian: of the largest marginal likelihood over all "
        "queries; virtual: 1)",
        choices=("auto",),
        above=0.0,
    )
    steps: int = param(2000, "largest number of steps to take", least=1)
    tolerance: float = param(1e-8, "stop when no score or reliability alone would move by more", above=0.0)

    @property
    def learns(self) -> bool:
        return True

    @property
    def prior_kind(self) -> int:
        return PRIORS[self.prior]

    @property
    def given_weight(self) -> float:
        return 1.0 if self.weight == "auto" else float(self.weight)

    @property
    def seeks(self) -> bool:
        """Whether the weight of the prior of scores is chosen by the data."""
        return self.prior == "gaussian" and self.weight == "auto"

    def votes(self, chunk: Chunk) -> Votes:
        return votes_of(chunk, 0.5 if self.ties == "half" else 0.0)

    def first(self, experts: int) -> Floats:  # (parameters of all experts,)
        """The parameters to start from: the prior's."""
        raise NotImplementedError

    def mixture(self, theta: Floats) -> Mixture:
        """The mixture of every expert at some parameters."""
        raise NotImplementedError

    def given_mixture(self, params: Params) -> Mixture:
        """The mixture of every expert from what was learned; unseen experts say nothing about scores."""
        raise NotImplementedError

    def chain(self, theta: Floats) -> Chain:
        """How the chances of votes change with the parameters."""
        raise NotImplementedError

    def prior_information(self, theta: Floats) -> Floats:  # (experts, k, k)
        raise NotImplementedError

    def log_prior(self, theta: Floats) -> tuple[float, Floats]:
        """Log density of the prior of experts, but for a constant, and its gradient."""
        raise NotImplementedError

    def learned_params(self, theta: Floats, error: Floats) -> Params:
        """What is saved, from parameters and their standard errors (experts, k); errors are saved as those of chances.

        An interval of the log odds would be far too wide where the chance is near 1.
        """
        raise NotImplementedError

    def expert_slopes(self, theta: Floats, sums: Floats) -> tuple[float, Floats, Floats]:
        """Log prior, gradient of the log posterior, and a positive curvature, of the parameters of all experts.

        ``sums`` are those of ``kernels.mixture_slopes``.
        """
        rise, shift = self.chain(theta)
        once = rise * sums[:, :, 0, None] + shift * sums[:, :, 1, None]
        twice = (
            rise**2 * sums[:, :, 2, None] + 2.0 * rise * shift * sums[:, :, 3, None] + shift**2 * sums[:, :, 4, None]
        )
        value, slope = self.log_prior(theta)
        bend = np.diagonal(self.prior_information(theta), axis1=1, axis2=2)
        return value, slope + once.sum(axis=1).ravel(), (twice.sum(axis=1) + bend).ravel()

    def learning(self, n_experts: int, params: Params) -> Stage:
        return CrowdRound.begin(self, n_experts, params, fixed=False, split=False)

    def learning_split(self, n_experts: int, params: Params) -> Stage:
        return CrowdRound.begin(self, n_experts, params, fixed=False, split=True)

    def gathering(self, params: Params) -> Stage:
        return CrowdRound.begin(self, len(params["expert_votes"]), params, fixed=True, split=True)

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        raise NotImplementedError("a split query is gathered in rounds")

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        votes = self.votes(chunk)
        won, lost = wins_and_losses(votes, chunk.n_items)
        score = np.log((won + 0.5) / (lost + 0.5))
        ended = not_begun(chunk.n_queries, self.steps + 1 if trace else 0)
        prior = Prior(self.prior_kind, float(params["weight"][0]))
        mixture = self.given_mixture(params)
        fit_scores(votes, mixture, prior, self.tolerance, self.steps, chunk.item_offsets, score, ended)
        return self._outcome(chunk, score, won + lost, ended.columns(self.tolerance), ended.trace if trace else None)

    def fit_split(self, chunk: Chunk, gathered: Gathered, *, trace: bool) -> Outcome:
        fit: CrowdFit = gathered.statistics
        return self._outcome(chunk, fit.score, fit.compared, fit.ended.columns(self.tolerance), None)

    @property
    def query_columns(self) -> tuple[str, ...]:
        return FIT_COLUMNS

    def _outcome(
        self, chunk: Chunk, score: Floats, compared: Floats, fit: dict[str, np.ndarray], trace: Floats | None
    ) -> Outcome:
        """Centred on their mean over comparisons, and rounded, so that items with the same record tie."""
        score = centred(score, chunk.item_query(), compared) if len(score) else score
        return Outcome(np.round(score, DIGITS) + 0.0, {}, fit, trace)


@dataclass(frozen=True, kw_only=True)
class CrowdBt(Crowd):
    """An annotator agrees with the true preference of a pair with chance eta: below one half, it is turned round.

    The true preference itself is drawn by Bradley-Terry, so i is put over j with chance
    eta sigma(s_i - s_j) + (1 - eta) sigma(s_j - s_i). Turning round all scores and all annotators changes nothing; the
    fit starts where the majority of votes is, and ends on that side.
    """

    name: ClassVar[str] = "crowd_bt"
    summary: ClassVar[str] = "bradley_terry with the chance that each annotator agrees; reversers are turned round"
    paper: ClassVar[str] = "Chen et al. 2013"
    mirrored: ClassVar[bool] = True
    neutral: ClassVar[float] = 0.5

    agree: float = param(1.0, "prior of annotators: that many votes that agree", above=0.0)
    disagree: float = param(0.25, "prior of annotators: that many votes that disagree", above=0.0)

    def first(self, experts: int) -> Floats:
        return np.full(experts, np.log(self.agree / self.disagree))

    def mixture(self, theta: Floats) -> Mixture:
        eta = expit(theta)
        return Mixture(2.0 * eta - 1.0, np.repeat(expit(-theta)[:, None], PLACES, axis=1))

    def given_mixture(self, params: Params) -> Mixture:
        return self.mixture(params["expert_logit"])

    def chain(self, theta: Floats) -> Chain:
        step = np.broadcast_to((expit(theta) * expit(-theta))[:, None, None], (len(theta), PLACES, 1))
        return Chain(2.0 * step, -1.0 * step)

    def log_prior(self, theta: Floats) -> tuple[float, Floats]:
        eta = expit(theta)
        density = -(self.agree * np.logaddexp(0.0, -theta) + self.disagree * np.logaddexp(0.0, theta)).sum()
        return float(density), self.agree - (self.agree + self.disagree) * eta

    def prior_information(self, theta: Floats) -> Floats:
        eta = expit(theta)
        return np.asarray((self.agree + self.disagree) * eta * expit(-theta))[:, None, None]

    def reliabilities(self, params: Params) -> dict[str, np.ndarray]:
        eta = expit(params["expert_logit"])
        return reliability_columns(eta, params["expert_error"], params["expert_votes"])

    def learned_params(self, theta: Floats, error: Floats) -> Params:
        return {"expert_logit": theta, "expert_error": expit(theta) * expit(-theta) * error[:, 0]}


@dataclass(frozen=True, kw_only=True)
class NoisyBt(Crowd):
    """An annotator follows the strengths with its reliability as chance, and otherwise picks a place on the screen.

    The item shown first is chosen with chance g sigma(s_first - s_second) + (1 - g) b: g is the reliability, b the
    bias towards the first place. With ``covariates=position`` battles say what was shown first; without it b is one
    half.
    """

    name: ClassVar[str] = "noisy_bt"
    summary: ClassVar[str] = "bradley_terry with each annotator's reliability, and bias to what is shown first"
    paper: ClassVar[str] = "Bugakova et al. 2019, NoisyBT; crowd-kit"

    agree: float = param(1.0, "prior of annotators: that many votes that follow the strengths", least=0.0)
    noise: float = param(0.5, "prior of annotators: that many votes at random", least=0.0)
    even: float = param(1.0, "prior of annotators: that many random votes for each place", least=0.0)
    covariates: str = param(
        "", "position: learn each annotator's bias to the side of battles that is shown first (model_a)", text=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.covariates not in ("", POSITION):
            raise UsageError(f"parameter covariates of {self.name}: found '{self.covariates}', expected {POSITION}")

    def first(self, experts: int) -> Floats:
        start = np.zeros((experts, 2))
        start[:, 0] = 1.0
        return start.ravel()

    def mixture(self, theta: Floats) -> Mixture:
        reliability, bias = theta[0::2], theta[1::2]
        return _noisy(expit(reliability), expit(-reliability), bias)

    def given_mixture(self, params: Params) -> Mixture:
        return _noisy(params["expert_reliability"], 1.0 - params["expert_reliability"], params["expert_bias"])

    def chain(self, theta: Floats) -> Chain:
        trust, noise, first = expit(theta[0::2]), expit(-theta[0::2]), expit(theta[1::2])
        rise, shift = np.zeros((len(trust), PLACES, 2)), np.zeros((len(trust), PLACES, 2))
        rise[:, :, 0] = (trust * noise)[:, None]
        shift[:, :, 0] = -(trust * noise)[:, None] * _places(theta[1::2])
        shift[:, FIRST, 1] = noise * first * (1.0 - first)
        shift[:, SECOND, 1] = -noise * first * (1.0 - first)
        return Chain(rise, shift)

    def log_prior(self, theta: Floats) -> tuple[float, Floats]:
        slope = np.empty(len(theta))
        total = 0.0
        for at, (up, down) in enumerate(((self.agree, self.noise), (self.even, self.even))):
            part = theta[at::2]
            total -= float((up * np.logaddexp(0.0, -part) + down * np.logaddexp(0.0, part)).sum())
            slope[at::2] = up - (up + down) * expit(part)
        return total, slope

    def prior_information(self, theta: Floats) -> Floats:
        spread = expit(theta) * expit(-theta)
        matrix = np.zeros((len(theta) // 2, 2, 2))
        matrix[:, 0, 0] = (self.agree + self.noise) * spread[0::2]
        matrix[:, 1, 1] = 2.0 * self.even * spread[1::2]
        return matrix

    def reliabilities(self, params: Params) -> dict[str, np.ndarray]:
        columns = reliability_columns(params["expert_reliability"], params["expert_error"], params["expert_votes"])
        if not params["expert_bias"].any():  # no vote says what was shown first
            return columns
        unseen = np.isnan(columns["reliability"])
        bias, error = expit(params["expert_bias"]), params["expert_bias_error"]
        return {**columns, "bias": np.where(unseen, np.nan, bias), "bias_error": np.where(unseen, np.nan, error)}

    def learned_params(self, theta: Floats, error: Floats) -> Params:
        error = (expit(theta) * expit(-theta)).reshape(-1, 2) * error
        return {
            "expert_reliability": expit(theta[0::2]),
            "expert_error": error[:, 0],
            "expert_bias": theta[1::2].copy(),
            "expert_bias_error": error[:, 1],
        }


def _places(bias: Floats) -> Floats:  # (experts, PLACES)
    """The chance of a random vote for the winner's place."""
    return np.stack([expit(bias), expit(-bias), np.full(len(bias), 0.5)], axis=1)


def _noisy(trust: Floats, noise: Floats, bias: Floats) -> Mixture:
    return Mixture(np.ascontiguousarray(trust), noise[:, None] * _places(bias))
