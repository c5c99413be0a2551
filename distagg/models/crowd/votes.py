"""The votes of a chunk: raw pairs, and the pairs of lists, each with the expert who gave it."""

from __future__ import annotations

import numpy as np

from distagg.covariates import POSITION
from distagg.dataset.chunk import Chunk
from distagg.models.crowd.kernels import FIRST, SECOND, UNKNOWN, Votes
from distagg.models.lists import Pairs
from distagg.models.pairs import left_out, list_arrays, pair_arrays
from distagg.models.pairwise.count_kernels import Comparison, expand
from distagg.models.rounds import kept
from distagg.types import INDEX, OFFSET, Floats, Indices

OTHER = np.array([SECOND, FIRST, UNKNOWN])  # where the loser was shown


def votes_of(chunk: Chunk, unlisted: str, tie_share: float) -> Votes:
    """All votes of weight above 0. A tie is a vote for each side with ``tie_share`` of its weight."""
    return kept(chunk, ("votes", unlisted, tie_share), lambda of: _votes(of, unlisted, tie_share))


def wins_and_losses(votes: Votes, n_items: int) -> tuple[Floats, Floats]:  # (I,), (I,)
    """The weight of the votes for each item, and of those against it."""
    won, lost = (np.bincount(side, votes.weight, n_items) for side in (votes.winner, votes.loser))
    return won.astype(np.float64, copy=False), lost.astype(np.float64, copy=False)


def _votes(chunk: Chunk, unlisted: str, tie_share: float) -> Votes:
    pairs, expert = _pairs(chunk, unlisted)
    query = np.repeat(np.arange(chunk.n_queries), np.diff(pairs.offsets))
    base = chunk.item_offsets[query]
    winner, loser = base + pairs.winner, base + pairs.loser
    weight = np.where(pairs.tie, tie_share * pairs.weight, pairs.weight)
    some = (weight > 0.0) & (winner != loser)
    rows = np.concatenate([np.flatnonzero(some), np.flatnonzero(some & pairs.tie)])
    place = _places(chunk, len(expert))
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


def _places(chunk: Chunk, votes: int) -> Indices:
    """Where the winner of each vote was shown, if pairs have the covariate ``position``: 1 for first, -1 for second."""
    if POSITION not in chunk.covariate_names or votes > chunk.n_pairs:
        return np.full(votes, UNKNOWN, dtype=INDEX)
    position = chunk.pair_covariates[chunk.covariate_names.index(POSITION)]
    return np.select([position > 0.0, position < 0.0], [FIRST, SECOND], UNKNOWN).astype(INDEX)


def _pairs(chunk: Chunk, unlisted: str) -> tuple[Pairs, Indices]:
    """The pairs of all queries, those of lists before raw ones in each query, and the expert of each pair."""
    if not chunk.n_entries:
        return pair_arrays(chunk), chunk.pair_expert
    listed, behind = np.diff(chunk.entry_offsets), left_out(unlisted, chunk)
    compared = listed * (listed - 1) // 2 + listed * behind
    lists = np.ones(chunk.n_lists)
    how = Comparison(True, bool(behind.any()), chunk.entry_rank, lists, lists)
    room = int(compared.sum()) + chunk.n_pairs
    pairs = expand(how, list_arrays(chunk), pair_arrays(chunk), 0, chunk.n_queries, room)
    list_query = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
    pair_query = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.pair_offsets))
    query = np.concatenate([np.repeat(list_query, compared), pair_query])
    expert = np.concatenate([np.repeat(chunk.list_expert, compared), chunk.pair_expert])
    return pairs, expert[np.argsort(query, kind="stable")]
