"""mixture_mpm: groups of experts, each with scores of its own, by expectation maximisation.

A mixture of Multinomial Preference Models (Volkovs & Zemel 2014, section 2.3, leave it to future work). Every expert
belongs to one of K groups, which all queries share; given the groups, the scores of a query are K fits of ``mpm``, in
which lists count by the chance that their expert is in the group. A list of n items counts as n - 1 independent
preferences when groups are told apart, or every expert would be sure of its group. Cost: K x starts fits of ``mpm`` a
round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import not_converged, param
from distagg.models.lists import sum_by_item
from distagg.models.mpm.kernels import Fit, fit_queries
from distagg.models.mpm.model import Mpm
from distagg.models.outcome import Outcome
from distagg.models.pool import Pooled
from distagg.models.rounds import Params, Stage, Statistics
from distagg.optimise.convergence import not_begun
from distagg.types import OFFSET, Floats, Offsets


class Said(NamedTuple):
    """The preferences of lists and raw pairs, in the form that weighted sums over experts need."""

    entry_list: np.ndarray  # (E,)
    value: Floats  # (E,) what an entry won less what it lost, and what an item left out lost
    list_query: np.ndarray  # (L,)
    behind: Floats  # (L,) what every item that the list leaves out lost
    number: Floats  # (L,) of preferences
    pair_query: np.ndarray  # (P,)
    pair_weight: Floats  # (P,) 0 for ties


LEAST = 1e-6  # chance of every group that no expert loses
SETTLED = 1e-3  # groups are known when chances move by no more on average


@dataclass(frozen=True, kw_only=True)
class MixtureMpm(Pooled, Mpm):
    """Scores of one group. Groups are numbered by size, the largest one first; ``expert_group`` has all chances."""

    name: ClassVar[str] = "mixture_mpm"
    summary: ClassVar[str] = "groups of experts, each with an mpm of its own, learned without labels"
    paper: ClassVar[str] = "Volkovs & Zemel 2014, section 2.3"
    cost: ClassVar[str] = "(entries + items x steps) x groups x starts x rounds"
    learns_from_parts: ClassVar[bool] = True
    unseen: ClassVar[float] = -np.inf

    mixture: int = param(2, "number of groups", least=1)
    group: int = param(1, "the group whose ranking is given: 1 is the largest", least=1)
    starts: int = param(4, "random starts, of which the likeliest is kept", least=1)
    rounds: int = param(100, "largest number of rounds of learning groups", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group > self.mixture:
            raise UsageError(f"{self.name}: found group={self.group}, expected one of the {self.mixture} groups")

    @property
    def learns(self) -> bool:
        return True

    @property
    def weight_columns(self) -> tuple[str, ...]:
        return tuple(f"group {number + 1}" for number in range(self.mixture))

    def learning(self, n_experts: int, params: Params) -> Stage:
        draw = np.random.default_rng(np.random.SeedSequence([self.mixture, n_experts]))
        first = draw.integers(0, self.mixture, (self.starts, n_experts))
        return Census(self, np.asarray(first[:, :, None] == np.arange(self.mixture), dtype=np.float64))

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        weight = self._weight(params, chunk)
        tally = self.weighted(chunk, weight)
        if self.variance:
            tally["margins"] = next(margins for _, margins in self._margins(chunk, weight))
        return tally

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        weight = self._weight(params, chunk)
        margins: Iterator[tuple[int, Floats]] = self._margins(chunk, weight) if self.variance else iter(())
        return self._fitted(chunk, self.weighted(chunk, weight), None, margins, trace=trace)

    def _weight(self, params: Params, chunk: Chunk) -> Floats:  # (experts,)
        """The chance that an expert is in the group that is ranked; the same for all groups where nothing is known."""
        if "expert_group" not in params:
            return np.full(chunk.n_experts, 1.0 / self.mixture)
        chance = np.asarray(params["expert_group"], dtype=np.float64).reshape(-1, self.mixture)[:, self.group - 1]
        return np.where(np.isfinite(chance), chance, 1.0 / self.mixture)

    def weighted(self, chunk: Chunk, weight: Floats) -> Statistics:
        """Net wins of items and preferences of queries, in which experts count by their weights."""
        said, of_list = self._said(chunk), weight[chunk.list_expert]
        net = sum_by_item(chunk.entry_row(), said.value * of_list[said.entry_list], chunk.n_items)
        behind = sum_by_item(said.list_query, said.behind * of_list, chunk.n_queries)
        net -= np.repeat(behind, np.diff(chunk.item_offsets))
        observed = sum_by_item(said.list_query, said.number * of_list, chunk.n_queries)
        if chunk.n_pairs:
            first, told = chunk.item_offsets[said.pair_query], said.pair_weight * weight[chunk.pair_expert]
            net += sum_by_item(first + chunk.pair_winner, told, chunk.n_items)
            net -= sum_by_item(first + chunk.pair_loser, told, chunk.n_items)
            observed += sum_by_item(said.pair_query, told, chunk.n_queries)
        return {"net": net, "observed": observed[:, None]}

    def likelihoods(self, chunk: Chunk, score: Floats) -> Floats:  # (experts,)
        """Log likelihood of what every expert says in a chunk, at scores (I,); lists count by their evidence."""
        said, norm = self._said(chunk), log_partitions(chunk.item_offsets, score)
        total = sum_by_item(chunk.item_query(), score, chunk.n_queries)
        value = sum_by_item(said.entry_list, said.value * score[chunk.entry_row()], chunk.n_lists)
        value -= said.behind * total[said.list_query] + said.number * norm[said.list_query]
        free = np.maximum(np.diff(chunk.entry_offsets) - 1, 0)
        share = np.divide(free, said.number, out=np.zeros(chunk.n_lists), where=said.number > 0.0)
        found = sum_by_item(chunk.list_expert, value * np.minimum(share, 1.0), chunk.n_experts)
        if chunk.n_pairs:
            first = chunk.item_offsets[said.pair_query]
            gap = score[first + chunk.pair_winner] - score[first + chunk.pair_loser] - norm[said.pair_query]
            found = found + sum_by_item(chunk.pair_expert, said.pair_weight * gap, chunk.n_experts)
        return found

    def scores(self, item_offsets: Offsets, tally: Statistics) -> Floats:  # (I,)
        """Scores from net wins, without variances."""
        score = np.zeros(int(item_offsets[-1]))
        how = Fit(False, float(self.prior), float(self.tightness), float(self.tolerance), self.steps, 0.0)
        ended = not_begun(len(item_offsets) - 1)
        fit_queries(how, np.ones(1), item_offsets, tally["net"], tally["observed"], score, ended)
        return score

    def _said(self, chunk: Chunk) -> Said:
        sums, queries = self._sums(chunk), np.arange(chunk.n_queries)
        of_entry = np.repeat(np.arange(chunk.n_lists), np.diff(chunk.entry_offsets))
        return Said(
            of_entry,
            sums.won - sums.lost + sums.behind[of_entry],
            np.repeat(queries, np.diff(chunk.list_offsets)),
            sums.behind,
            sum_by_item(of_entry, sums.won, chunk.n_lists),
            np.repeat(queries, np.diff(chunk.pair_offsets)),
            np.where(chunk.pair_tie, 0.0, chunk.pair_weight),
        )


def log_partitions(item_offsets: Offsets, score: Floats) -> Floats:  # (Q,)
    """The logarithm of the sum over ordered pairs of exp(score - score), 0 for queries of one item."""
    norm = np.zeros(len(item_offsets) - 1)
    for q in range(len(norm)):
        s = score[item_offsets[q] : item_offsets[q + 1]]
        if len(s) > 1:
            low, high = s.min(), s.max()
            span = np.exp(low - high)
            norm[q] = high - low + np.log(np.exp(s - high).sum() * np.exp(low - s).sum() - len(s) * span)
    return norm


@dataclass(frozen=True, slots=True, eq=False)
class Census(Stage):
    """The first round: whether all chunks hold parts of one query."""

    model: MixtureMpm
    chance: Floats  # (starts, experts, groups)

    def map(self, chunk: Chunk) -> Statistics:
        return {"chunks": np.array([1]), "queries": np.unique(chunk.positions)}

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        return {"chunks": a["chunks"] + b["chunks"], "queries": np.union1d(a["queries"], b["queries"])}

    def finish(self, statistics: Statistics) -> Stage:
        if len(statistics["queries"]) == 1 and statistics["chunks"][0] > 1:
            return GatherRound(self.model, self.chance, 0)
        return GroupRound(self.model, self.chance, np.empty((0, 0, 0)), 0)


@dataclass(frozen=True, slots=True, eq=False)
class GatherRound(Stage):
    """A round over a split query: the net wins of its items in every group, which determine the scores."""

    model: MixtureMpm
    chance: Floats  # (starts, experts, groups)
    round: int  # rounds done

    def map(self, chunk: Chunk) -> Statistics:
        tallies = [self.model.weighted(chunk, weight) for weight in _columns(self.chance)]
        return {name: np.concatenate([tally[name] for tally in tallies]) for name in tallies[0]}

    def finish(self, statistics: Statistics) -> Stage:
        starts, _, groups = self.chance.shape
        offsets = np.linspace(0, len(statistics["net"]), starts * groups + 1).astype(OFFSET)
        score = self.model.scores(offsets, statistics)
        return GroupRound(self.model, self.chance, score.reshape(starts, groups, -1), self.round)


@dataclass(frozen=True, slots=True, eq=False)
class GroupRound(Stage):
    """How likely every expert's preferences are in each group, and the chances that follow."""

    model: MixtureMpm
    chance: Floats  # (starts, experts, groups)
    score: Floats  # (starts, groups, items) of a split query; empty where chunks have whole queries
    round: int  # rounds done

    def map(self, chunk: Chunk) -> Statistics:
        model, (starts, _, groups) = self.model, self.chance.shape
        if not self.score.size:
            chunk = model.pooled(chunk)
            tallies = [model.weighted(chunk, weight) for weight in _columns(self.chance)]
            scores = [model.scores(chunk.item_offsets, tally) for tally in tallies]
        else:
            scores = list(self.score.reshape(starts * groups, -1))
        found = np.array([model.likelihoods(chunk, score) for score in scores])
        return {"value": found.reshape(starts, groups, -1)}

    def finish(self, statistics: Statistics) -> Stage | Params:
        share = self.chance.mean(axis=1, keepdims=True)  # (starts, 1, groups)
        odds = np.log(np.maximum(share, LEAST)) + statistics["value"].transpose(0, 2, 1)
        most = odds.max(axis=2, keepdims=True)
        chance = np.exp(odds - most)
        total = chance.sum(axis=2, keepdims=True)
        value = (most + np.log(total)).sum(axis=(1, 2))
        chance = (1.0 - LEAST) * chance / total + LEAST / chance.shape[2]
        moved = float(np.abs(chance - self.chance).mean(axis=(1, 2)).max())
        if moved > SETTLED and self.round + 1 < self.model.rounds:
            if self.score.size:
                return GatherRound(self.model, chance, self.round + 1)
            return GroupRound(self.model, chance, self.score, self.round + 1)
        if moved > SETTLED:
            not_converged(
                f"mixture_mpm: groups still move by {moved:.1e} after {self.model.rounds} rounds; raise rounds"
            )
        best = chance[int(np.argmax(value))]
        order = np.argsort(-best.sum(axis=0), kind="stable")
        return {"expert_group": best[:, order], "rounds": np.array([self.round + 1.0])}


def _columns(chance: Floats) -> Iterator[Floats]:
    """The weights of experts (experts,) in every group of every start."""
    for start in chance:
        for group in range(chance.shape[2]):
            yield np.ascontiguousarray(start[:, group])
