"""The votes of a chunk: its pairs, each with the expert who gave it."""

from __future__ import annotations

import numpy as np

from distagg.covariates import POSITION
from distagg.dataset.chunk import Chunk
from distagg.models.crowd.kernels import FIRST, SECOND, UNKNOWN, Votes
from distagg.models.pairs import pair_arrays
from distagg.models.rounds import kept
from distagg.types import INDEX, OFFSET, Floats, Indices

OTHER = np.array([SECOND, FIRST, UNKNOWN])  # where the loser was shown


def votes_of(chunk: Chunk, tie_share: float) -> Votes:
    """All votes of weight above 0. A tie is a vote for each side with ``tie_share`` of its weight."""
    return kept(chunk, ("votes", tie_share), lambda of: _votes(of, tie_share))


def wins_and_losses(votes: Votes, n_items: int) -> tuple[Floats, Floats]:  # (I,), (I,)
    """The weight of the votes for each item, and of those against it."""
    won, lost = (np.bincount(side, votes.weight, n_items) for side in (votes.winner, votes.loser))
    return won.astype(np.float64, copy=False), lost.astype(np.float64, copy=False)


def _votes(chunk: Chunk, tie_share: float) -> Votes:
    pairs, expert = pair_arrays(chunk), chunk.pair_expert
    query = np.repeat(np.arange(chunk.n_queries), np.diff(pairs.offsets))
    base = chunk.item_offsets[query]
    winner, loser = base + pairs.winner, base + pairs.loser
    weight = np.where(pairs.tie, tie_share * pairs.weight, pairs.weight)
    some = (weight > 0.0) & (winner != loser)
    rows = np.concatenate([np.flatnonzero(some), np.flatnonzero(some & pairs.tie)])
    place = _places(chunk)
    turned = np.arange(len(rows)) >= some.sum()  # a tie once more, for the other side
    order = np.argsort(query[rows], kind="stable")
    rows, turned = rows[order], turned[order]
    offsets = np.zeros(chunk.n_queries + 1, dtype=OFFSET)
    np.cumsum(np.bincount(query[rows], minlength=chunk.n_queries), out=offsets[1:])
    votes = Votes(
        offsets,
        np.where(turned, loser[rows], winner[rows]).astype(INDEX),
        np.where(turned, winner[rows], loser[rows]).astype(INDEX),
        expert[rows],
        np.where(turned, OTHER[place[rows]], place[rows]).astype(INDEX),
        weight[rows],
        np.bincount(expert[some & ~pairs.tie], minlength=chunk.n_experts).astype(np.float64),
    )
    for column in votes:
        column.setflags(write=False)
    return votes


def _places(chunk: Chunk) -> Indices:
    """Where the winner of each vote was shown, if pairs have the covariate ``position``: 1 for first, -1 for second."""
    if POSITION not in chunk.covariate_names:
        return np.full(chunk.n_pairs, UNKNOWN, dtype=INDEX)
    position = chunk.pair_covariates[chunk.covariate_names.index(POSITION)]
    return np.select([position > 0.0, position < 0.0], [FIRST, SECOND], UNKNOWN).astype(INDEX)
