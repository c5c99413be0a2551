"""bradley_terry and thurstone: scores whose gaps are chances to win."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_scalar
from distagg.covariates import terms_of
from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError, unknown
from distagg.models.base import param
from distagg.models.outcome import Outcome
from distagg.models.pairwise.adjusted import COEFFICIENT_COLUMNS, Survey, fit_whole
from distagg.models.pairwise.counted import Graph, refuse_endless_ties
from distagg.models.pairwise.counts import Counts
from distagg.models.pairwise.descent import descend_queries
from distagg.models.pairwise.kernels import Fit as NewtonFit
from distagg.models.pairwise.links import DAVIDSON, LOGIT, PROBIT, RAO_KUPPER
from distagg.models.pairwise.minorise import Fit, minorise_queries
from distagg.models.pairwise.solver import PRIORS, Pairwise
from distagg.models.rounds import Params, Stage
from distagg.types import Floats, Offsets

TIE_LINKS = {"davidson": DAVIDSON, "rao_kupper": RAO_KUPPER}
TIE_SHARES = {"ignore": 0.0, "half": 0.5, "davidson": 0.5, "rao_kupper": 1.0}
UNITS = {"log": 1.0, "elo": 400.0 / math.log(10.0)}


def read_anchor(text: str) -> tuple[str, float]:
    """The item and its score; no item in an empty text.

    >>> read_anchor("gpt-4:1200"), read_anchor("")
    (('gpt-4', 1200.0), ('', 0.0))
    """
    if not text:
        return "", 0.0
    name, _, value = text.rpartition(":")
    try:
        if name and math.isfinite(float(value)):
            return name, float(value)
    except ValueError:
        pass
    raise UsageError(f"parameter anchor: found '{text}', expected NAME:VALUE, an item and its score, as in gpt-4:1200")


@dataclass(frozen=True, kw_only=True)
class BradleyTerry(Pairwise):
    """Log strengths: i beats j with chance 1 / (1 + exp(s_j - s_i))."""

    name: ClassVar[str] = "bradley_terry"
    summary: ClassVar[str] = "log strengths: the logistic function of their gap is the chance to win a pair"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Bradley & Terry 1952"

    ties: str = param(
        "half",
        "ignore ties, count half a win for each side, or learn how likely they are: davidson (1970), rao_kupper (1967)",
        choices=tuple(TIE_SHARES),
    )
    prior: str = param(
        "gaussian",
        "gaussian on scores or gamma on strengths keeps all scores finite; none is maximum likelihood",
        choices=("gaussian", "gamma", "none"),
    )
    shape: float = param(2.0, "shape of the gamma prior", above=1.0)
    solver: str = param(
        "newton",
        "newton; mm (minorisation-maximisation, with prior gamma or none; ties ignore or half); or gradient: plain "
        "steps from scores of 0, with prior=none steps=100 as in the papers (what is left of the gradient is reported)",
        choices=("newton", "mm", "gradient"),
    )
    rate: float = param(1.0, "length of a gradient step", above=0.0)
    scale: str = param(
        "log",
        "log: scores are logarithms of odds, and their mean over comparisons is 0; elo: they are 400 / ln 10 times as "
        "large, and that mean is base",
        choices=tuple(UNITS),
    )
    base: float = param(1000.0, "mean score over comparisons with scale=elo")
    anchor: str = param("", "NAME:VALUE gives an item this score, and moves all others with it", text=True)
    covariates: str = param(
        "",
        "columns of pairs whose effect is fitted with the strengths: length_a-length_b (the difference of two sides), "
        "relative(length) (divided by their sum), position, or any other column; text is a category. Coefficients have "
        "no prior",
        text=True,
    )

    def __post_init__(self) -> None:
        terms = terms_of(self.covariates)
        object.__setattr__(self, "covariates", ",".join(term.text for term in terms))
        super().__post_init__()
        read_anchor(self.anchor)
        self._check_covariates()
        if self.solver == "mm" and (self.prior == "gaussian" or self.ties in TIE_LINKS):
            raise UsageError(
                f"{self.name}: solver=mm has no step for prior={self.prior} with ties={self.ties}; choose prior=gamma "
                "or none and ties=half or ignore, or solver=newton"
            )
        if self.solver == "gradient" and (self.seeks or self.ties in TIE_LINKS or self.errors != "none"):
            raise UsageError(
                f"{self.name}: solver=gradient learns neither the weight of a prior nor a tie parameter, and errors "
                "mean nothing where it stops; choose prior=none or a number for weight, ties=half or ignore, and "
                "errors=none"
            )

    def _check_covariates(self) -> None:
        """Refuse settings that cannot be combined with covariates."""
        wanted = {"solver": ("newton",), "prior": ("gaussian", "none"), "ties": ("half", "ignore")}
        wanted["errors"] = ("none", "standard")
        for name, choices in wanted.items():
            if self.covariates and getattr(self, name) not in choices:
                raise UsageError(
                    f"{self.name}: covariates cannot be fitted with {name}={getattr(self, name)}; "
                    f"choose {name}={' or '.join(choices)}"
                )

    def gathering(self, params: Params) -> Stage:
        return Survey(self, params) if self.covariates else super().gathering(params)

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        if self.covariates and chunk.n_queries:
            return self.shown(chunk, fit_whole(self, chunk, params))
        return super().fit_chunk(chunk, params, trace=trace)

    @property
    def link(self) -> int:
        return TIE_LINKS.get(self.ties, LOGIT)

    @property
    def prior_numbers(self) -> tuple[int, float, float]:
        # The rate of a gamma prior is a scale: it moves all scores together, and scores are centred.
        return PRIORS[self.prior], 1.0 if self.prior == "gamma" else self.given_weight, self.shape

    @property
    def tie_share(self) -> float:
        return TIE_SHARES[self.ties]

    def _run(
        self,
        counts: Counts,
        weight: Floats,
        centre: Floats,
        steps: int,
        score: Floats,
        eta: Floats,
        taken: Offsets,
        left: Floats,
        *,
        seek: bool = False,
    ) -> None:
        if self.solver == "newton":
            super()._run(counts, weight, centre, steps, score, eta, taken, left, seek=seek)
            return
        if self.solver == "gradient":
            prior, _, shape = self.prior_numbers
            plan = NewtonFit(self.link, prior, shape, False, self.tolerance, steps)
            descend_queries(plan, self.rate, counts.graph, weight, centre, score, taken, left)
            return
        how = Fit(*self.prior_numbers, self.tolerance, steps)
        minorise_queries(how, counts.graph, score, taken, left)

    @property
    def query_columns(self) -> tuple[str, ...]:
        more = ("tie",) if self.ties in TIE_LINKS else COEFFICIENT_COLUMNS if self.covariates else ()
        return (*super().query_columns, *more)

    def prior_deviation(self, weight: Floats) -> Floats:
        if self.prior == "gamma":
            return np.full(len(weight), (self.shape - 1) ** -0.5)
        return super().prior_deviation(weight)

    def shown(self, chunk: Chunk, outcome: Outcome) -> Outcome:
        """Scores and intervals of every query, scaled and moved."""
        unit = UNITS[self.scale]
        shift = np.empty(chunk.n_queries)
        for q in range(chunk.n_queries):
            items = slice(int(chunk.item_offsets[q]), int(chunk.item_offsets[q + 1]))
            names = chunk.item_ids[items] if len(chunk.item_ids) else None
            shift[q] = self.shift(str(chunk.query_ids[q]), names, unit * outcome.score[items])
        move = shift[chunk.item_query()]
        columns = dict(outcome.items)
        for name in ("low", "high"):
            if name in columns:
                columns[name] = unit * columns[name] + move
        if "uncertainty" in columns:
            columns["uncertainty"] = unit * columns["uncertainty"]
        return replace(outcome, score=unit * outcome.score + move, items=columns)

    def shift(self, query: str, names: pa.Array | None, score: Floats) -> float:
        """The number to add to a query's scaled scores so that the anchor has its score; 0 if items have no names."""
        if not self.anchor or names is None:
            return self.base if self.scale == "elo" else 0.0
        name, value = read_anchor(self.anchor)
        at = int(pc.index(names, as_scalar(name)).as_py())
        if at < 0:
            raise unknown(f"anchor of query {query}:", name, names.to_pylist()[:20])
        return float(value - score[at])

    def start_eta(self, counts: Counts) -> Floats:
        """The tie parameter at equal scores. It stays at its lower limit without ties, at inf without wins."""
        if self.ties not in TIE_LINKS:
            return super().start_eta(counts)
        sums = np.concatenate([[0.0], np.cumsum(counts.ahead + counts.behind)])[counts.offsets[counts.item_offsets]]
        wins = np.diff(sums) - 2 * TIE_SHARES[self.ties] * counts.ties
        wins = np.where(wins > 1e-9 * counts.ties, wins, 0.0)
        odds = np.divide(counts.ties, wins, out=np.full(len(wins), np.inf), where=wins > 0)
        odds[counts.ties == 0] = 0.0
        with np.errstate(divide="ignore"):
            return np.log(2 * odds) if self.ties == "davidson" else np.log1p(2 * odds)

    def fitted(
        self,
        counts: Counts,
        graph: Graph,
        start: Floats | None = None,
        weight: Floats | None = None,
        centre: Floats | None = None,
        *,
        trace: bool = False,
    ) -> tuple[Outcome, Floats]:
        """The fit, with the tie parameter (nu or theta) in column ``tie``: 0 or 1 without ties, inf without wins."""
        outcome, eta = super().fitted(counts, graph, start, weight, centre, trace=trace)
        if self.ties in TIE_LINKS:
            outcome.queries["tie"] = np.exp(eta)
        return outcome, eta

    def first_scores(self, counts: Counts) -> Floats:
        return np.zeros(len(counts.won)) if self.solver == "gradient" else super().first_scores(counts)

    def refuse_endless(self, chunk: Chunk, graph: Graph, *, split: bool) -> None:
        """Also refuse a learned tie parameter that would diverge with the scores, because the wins form no cycle."""
        if self.solver == "gradient":
            return  # a number of steps ends somewhere
        super().refuse_endless(chunk, graph, split=split)
        if self.ties not in TIE_LINKS:
            return
        wins = None if split else replace(self.counting(chunk), share=0.0).count(chunk)
        refuse_endless_ties(self.name, self.ties, chunk, wins, "choose prior=gaussian")


@dataclass(frozen=True, kw_only=True)
class Thurstone(Pairwise):
    """Case V: i beats j with chance Phi((s_i - s_j) / sqrt 2), as if each had unit normal noise of its own."""

    name: ClassVar[str] = "thurstone"
    summary: ClassVar[str] = "normal merits (case V): Phi of their gap / sqrt 2 is the chance to win a pair"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Thurstone 1927"

    @property
    def link(self) -> int:
        return PROBIT
