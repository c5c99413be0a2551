"""What is measured on held-out users: how well one ranking of all movies orders what each of them rated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distagg import rank
from distagg.dataset import Dataset
from distagg.dataset.chunk import Chunk
from distagg.models import model_named
from distagg.models.rounds import Stage
from distagg.types import OFFSET, Bools, Floats
from jobs.reproduce.experiments import stopping

FOLDS = 5
DIGITS = 6
DEPTH = 10


def held_out_users(dataset: Dataset, models: Mapping[str, tuple[str, Mapping[str, Any]]], seed: int) -> dict[str, Any]:
    """Users in five parts; each is judged by rankings of the other four. By model, for every user: the share of its
    pairs of different ratings that are ordered right, and NDCG@10 of its own movies in the ranking's order.
    """
    experts = np.array(dataset.experts)
    parts = np.array_split(np.random.default_rng(seed).permutation(len(experts)), FOLDS)
    found: dict[str, dict[str, list[float]]] = {name: {"pairs": [], "ndcg": []} for name in models}
    for part in parts:
        held = set(experts[part].tolist())
        rest = dataset.select(without=sorted(held))
        users = [lists for lists in _ratings(dataset) if lists[0] in held]
        for name, (model, given) in models.items():
            with stopping(given):
                table = rank(model, rest, **given)
            score = dict(zip(table["item"].to_pylist(), table["score"].to_pylist(), strict=True))
            lowest = min(score.values())
            for _, items, ratings in users:
                guess = np.array([score.get(item, lowest) for item in items])
                found[name]["pairs"].append(ordered_right(guess, ratings))
                found[name]["ndcg"].append(own_ndcg(guess, ratings))
    return {"users": {name: {key: np.round(v, DIGITS).tolist() for key, v in by.items()} for name, by in found.items()}}


def _ratings(dataset: Dataset) -> list[tuple[str, list[str], Floats]]:
    """Every user with the ids of its movies and its ratings."""
    found = []
    for chunk in dataset.chunks():
        ids = chunk.item_ids.to_pylist()
        for a in range(chunk.n_lists):
            rows = slice(int(chunk.entry_offsets[a]), int(chunk.entry_offsets[a + 1]))
            items = [ids[i] for i in chunk.entry_item[rows]]
            found.append((dataset.experts[chunk.list_expert[a]], items, -chunk.entry_rank[rows]))
    return found


def ordered_right(guess: Floats, truth: Floats) -> float:
    """The share of pairs of different truth whose guesses are in the same order; equal guesses count half.

    >>> ordered_right(np.array([3.0, 2.0, 2.0]), np.array([5.0, 4.0, 1.0]))
    0.8333333333333334
    """
    above = truth[:, None] > truth
    if not above.any():
        return float("nan")
    gap = (guess[:, None] - guess)[above]
    return float(((gap > 0) + 0.5 * (gap == 0)).mean())


def own_ndcg(guess: Floats, truth: Floats) -> float:
    """NDCG@10 of one user's movies in the order of the guesses, gain 2^rating - 1."""
    gain, discount = np.exp2(truth) - 1.0, 1.0 / np.log2(np.arange(2, min(DEPTH, len(truth)) + 2))
    order, best = np.argsort(-guess, kind="stable")[: len(discount)], -np.sort(-gain)[: len(discount)]
    return float(gain[order] @ discount / (best @ discount))


def held_out_pairs(dataset: Dataset, mixtures: Sequence[int], seed: int) -> dict[str, Any]:
    """Half of every user's ratings, at random, teach; the pairs of the other half judge.

    By number of groups, for every user the share of its pairs that are ordered right: by the scores of all groups, each
    with the chance that the user belongs to it. And the titles at the top of every group, with its share of users.
    """
    (chunk,) = list(dataset.chunks())
    draw = np.random.default_rng(seed)
    user = np.repeat(np.arange(chunk.n_lists), np.diff(chunk.entry_offsets))
    order = np.lexsort((draw.random(chunk.n_entries), user))
    place = np.empty(chunk.n_entries, dtype=np.int64)
    place[order] = np.arange(chunk.n_entries) - np.repeat(chunk.entry_offsets[:-1], np.diff(chunk.entry_offsets))
    teaches = place % 2 == 0
    taught, known = of_entries(chunk, teaches), dataset.titles
    names = {} if known is None else dict(zip(known["item"].to_pylist(), known["title"].to_pylist(), strict=True))
    found: dict[str, Any] = {}
    for groups in mixtures:
        model = model_named("mixture_mpm", {"mixture": groups})
        step: Any = model.learning(chunk.n_experts, {})
        while isinstance(step, Stage):
            step = step.finish(step.map(taught))
        score = np.array([replace(model, group=group + 1).score(taught, step) for group in range(groups)])
        chance = step["expert_group"]
        shares = []
        for a in range(chunk.n_lists):
            held = np.flatnonzero((user == a) & ~teaches)
            guess = chance[chunk.list_expert[a]] @ score[:, chunk.entry_item[held]]
            shares.append(ordered_right(guess, -chunk.entry_rank[held]))
        best = np.argsort(-score, axis=1, kind="stable")[:, :DEPTH]
        ids = [[chunk.item_ids[int(i)].as_py() for i in row] for row in best]
        found[str(groups)] = {
            "users": np.round(shares, DIGITS).tolist(),
            "share": chance.mean(axis=0).round(3).tolist(),
            "sure": float((chance.max(axis=1) > 0.9).mean()),
            "tops": [[names.get(item, item) for item in row] for row in ids],
        }
    return {"groups": found}


def of_entries(chunk: Chunk, kept: Bools) -> Chunk:
    """The chunk with those entries of its lists only."""
    count = np.concatenate([[0], np.cumsum(kept)])
    return replace(
        chunk,
        entry_offsets=count[chunk.entry_offsets].astype(OFFSET),
        entry_item=chunk.entry_item[kept],
        entry_rank=chunk.entry_rank[kept],
        entry_score=chunk.entry_score[kept] if len(chunk.entry_score) else chunk.entry_score,
    )
