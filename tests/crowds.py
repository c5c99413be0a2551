"""Votes of planted crowds: strengths, and annotators of known worth."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.dataset import Dataset
from distagg.models.crowd.kernels import GAUSSIAN, Prior, Votes

PLANTED = {"good": (10, 0.95), "coin": (4, 0.5), "turned": (3, 0.05)}  # number of annotators, chance to agree


def planted_votes(
    seed: int = 0, items: int = 12, votes: int = 60, planted: dict[str, tuple[int, float]] = PLANTED, queries: int = 1
) -> tuple[np.ndarray, dict[str, float], pa.Table]:
    """Strengths (queries, items), every annotator's chance to agree, and votes by Crowd-BT's own model."""
    draw = np.random.default_rng(seed)
    strength = draw.normal(0.0, 1.5, (queries, items))
    strength -= strength.mean(axis=1, keepdims=True)
    eta = {f"{kind}-{n}": chance for kind, (count, chance) in planted.items() for n in range(count)}
    number = len(eta) * votes
    query = draw.integers(0, queries, number)
    first = draw.integers(0, items, number)
    second = (first + draw.integers(1, items, number)) % items
    expert = np.repeat(np.arange(len(eta)), votes)
    gap = strength[query, first] - strength[query, second]
    prefers = draw.random(number) < 1.0 / (1.0 + np.exp(-gap))
    prefers ^= draw.random(number) >= np.array(list(eta.values()))[expert]
    columns = {
        "winner": [f"i{i:02}" for i in np.where(prefers, first, second)],
        "loser": [f"i{i:02}" for i in np.where(prefers, second, first)],
        "expert": np.array(list(eta))[expert],
    }
    if queries > 1:
        columns["query"] = [f"q{q:03}" for q in query]
    return strength, eta, pa.table(columns)


def in_pieces(dataset: Dataset, pieces: int) -> Dataset:
    """The dataset of one query with its experts spread over chunks."""
    whole = dataset.plan()[0].load()
    chunks = []
    for experts in np.array_split(np.arange(whole.n_experts), pieces):
        times = np.zeros(whole.n_experts, dtype=np.int64)
        times[experts] = 1
        chunks.append(whole.repeat_experts(times))
    block = dataset.manifest.blocks[0]
    blocks = tuple(replace(block, entries=chunk.n_pairs) for chunk in chunks)
    return replace(dataset, held=tuple(chunks), manifest=replace(dataset.manifest, blocks=blocks, partition="expert"))


def naive_chance(name: str, theta: np.ndarray, expert: int, place: int, gap: float) -> float:
    """The chance of a vote, as the models define it."""
    follow = 1.0 / (1.0 + math.exp(-gap))
    if name == "crowd_bt":
        eta = 1.0 / (1.0 + math.exp(-theta[expert]))
        return eta * follow + (1.0 - eta) * (1.0 - follow)
    trust, first = (1.0 / (1.0 + math.exp(-theta[2 * expert + k])) for k in (0, 1))
    return trust * follow + (1.0 - trust) * (first, 1.0 - first, 0.5)[place]


def naive_posterior(model: Any, votes: Votes, x: np.ndarray, prior: Prior) -> float:
    """The log posterior of scores and parameters, vote by vote."""
    name, experts, total = model.name, len(votes.decided), 0.0
    score, theta = np.split(x, [len(x) - len(model.first(experts))])
    for winner, loser, expert, place, weight in zip(*votes[1:6], strict=True):
        total += weight * math.log(naive_chance(name, theta, expert, place, score[winner] - score[loser]))
    for s in score:
        chance = 1.0 / (1.0 + math.exp(-s))
        total += -prior.weight / 2 * s * s if prior.kind == GAUSSIAN else prior.weight * math.log(chance * (1 - chance))
    for at, value in enumerate(theta):
        chance = 1.0 / (1.0 + math.exp(-value))
        up, down = model.agree, model.disagree if name == "crowd_bt" else model.noise
        up, down = (model.even, model.even) if name == "noisy_bt" and at % 2 else (up, down)
        total += up * math.log(chance) + down * math.log(1.0 - chance)
    return total
