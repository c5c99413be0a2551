"""mallows: lists scattered around one central order (Mallows 1957), with the likeliest dispersion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import param
from distagg.models.distances.kemeny import Kemeny
from distagg.models.distances.mallows_kernels import count_stages, fit_theta, log_likelihood
from distagg.models.majority.kernels import chunk_margins
from distagg.models.outcome import Outcome
from distagg.models.rounds import Gathered, Params, Statistics
from distagg.optimise.convergence import not_begun
from distagg.types import Floats

LARGEST_THETA = 50.0  # phi = exp(-theta) is then as good as 0


@dataclass(frozen=True, kw_only=True)
class Mallows(Kemeny):
    """A list has odds phi^(discordant pairs with the centre); the likeliest centre is Kemeny's order.

    With ``unlisted`` last a list is the top of a full ranking, whose probability has a closed form (Fligner & Verducci
    1986). With ignore a list counts as a draw over the items that it holds, around the centre restricted to them: an
    approximation, because the marginal of a Mallows distribution is not one. A tied pair counts half; a raw pair is a
    list of two with its weight.

    Scores are, for ``scores`` expected, the expected number of items behind an item: every pair is decided by itself
    with the posterior odds phi^-margin, so that the score says how sure the order is; an item in no list gets the mean
    with ignore. ``places`` are those of the centre. ``phi`` is 0 where all lists agree with the centre and 1 where they
    are no nearer to it than chance.
    """

    name: ClassVar[str] = "mallows"
    summary: ClassVar[str] = "lists scattered around one central order, with the likeliest dispersion"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.2; Mallows 1957; Fligner & Verducci 1986"
    criterion: ClassVar[str] = "slope of the log likelihood in theta for each entry at most tolerance"

    scores: str = param("expected", "expected (items behind) or places (in the centre)", choices=("expected", "places"))
    tolerance: float = param(1e-10, "stop when the slope for each entry is no larger", above=0.0)
    steps: int = param(100, "most Newton steps to take", least=1)

    @property
    def query_columns(self) -> tuple[str, ...]:
        return (*super().query_columns, "phi")

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        stages, tied = self._stages(chunk)
        return {**super().map(chunk, params), "stages": stages, "tied": tied}

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        centre, arrays = super().fit_chunk(chunk, params, trace=False), self._arrays(chunk, params)
        return self._dispersed(chunk, centre, *self._stages(chunk), lambda q: chunk_margins(q, *arrays), trace)

    def fit_split(self, chunk: Chunk, gathered: Gathered, *, trace: bool) -> Outcome:
        centre, known = super().fit_split(chunk, gathered, trace=False), gathered.statistics
        return self._dispersed(chunk, centre, known["stages"], known["tied"], lambda q: known["margins"], trace)

    def _dispersed(
        self,
        chunk: Chunk,
        centre: Outcome,
        stages: Floats,  # (Q, longest)
        tied: Floats,  # (Q,)
        margins: Callable[[int], Floats],  # of a query
        trace: bool,
    ) -> Outcome:
        """The likeliest dispersion of every query around its centre."""
        distance, score = centre.queries["kemeny"] + 0.5 * tied, centre.score
        theta, ended = np.zeros(chunk.n_queries), not_begun(chunk.n_queries, self.steps if trace else 0)
        for q in range(chunk.n_queries):
            span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
            theta[q], ended.iterations[q], ended.gradient[q] = fit_theta(
                distance[q], stages[q], self.tolerance, self.steps, LARGEST_THETA, ended.trace[q]
            )
            ended.objective[q] = log_likelihood(theta[q], distance[q], stages[q])
            if self.scores == "expected":
                score[span] = expected_behind(theta[q] * margins(q))
        phi = np.where(theta < LARGEST_THETA, np.exp(-theta), 0.0)
        queries = {**centre.queries, **ended.columns(self.tolerance), "phi": phi}
        return Outcome(score, queries=queries, trace=ended.trace if trace else None)

    def _stages(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """Of every query: stages by the items left, and tied pairs."""
        rows = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
        stages, tied = stages_of(chunk, rows, chunk.n_queries, self.unlisted == "last")
        if chunk.n_pairs:
            rows = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.pair_offsets))
            weight = np.bincount(rows, chunk.pair_weight, chunk.n_queries)
            stages[:, :2] += weight[:, None]
            tied += np.bincount(rows, np.where(chunk.pair_tie, chunk.pair_weight, 0.0), chunk.n_queries)
        return stages, tied


def stages_of(chunk: Chunk, rows: np.ndarray, n_rows: int, unlisted_last: bool) -> tuple[Floats, Floats]:
    """Stages (n_rows, longest query) and tied pairs (n_rows,) of a chunk's lists, list a counted in row rows[a]."""
    stages, tied = np.zeros((n_rows, int(np.diff(chunk.item_offsets).max(initial=0)))), np.zeros(n_rows)
    count_stages(
        unlisted_last,
        chunk.item_offsets,
        chunk.list_offsets,
        chunk.entry_offsets,
        chunk.entry_rank,
        rows.astype(np.int64),
        stages,
        tied,
    )
    return stages, tied


def expected_behind(odds: Floats) -> Floats:  # (size, size) -> (size,)
    """Expected items behind each one, when i stands before j with log odds ``odds[i, j]``, every pair by itself."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * odds)).sum(axis=1) - 0.5)
