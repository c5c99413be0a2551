"""Rules that the papers' figures come from and that are no model here: scores from the lists of a chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distagg.dataset import Dataset
from distagg.dataset.chunk import Chunk
from distagg.types import Floats
from jobs.reproduce.experiments import five_folds, turned_round


def points(chunk: Chunk) -> Floats:
    """n + 1 - place for every list that holds the item, n items in the query: Borda count of Niu et al. 2013."""
    query, item = _places(chunk)
    n_items = np.diff(chunk.item_offsets)[query]
    found: Floats = np.bincount(item, n_items + 1 - chunk.entry_rank, chunk.n_items)
    return found


def net_wins(chunk: Chunk) -> Floats:
    """Items beaten less items lost to: Condorcet of Volkovs & Zemel 2014.

    Of two items, the one with the larger sum of rank differences over the lists that hold both is the winner.
    """
    query, item = _places(chunk)
    expert = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
    score = np.zeros(chunk.n_items)
    for q, (start, end) in enumerate(zip(chunk.item_offsets[:-1], chunk.item_offsets[1:], strict=True)):
        here = query == q
        rank, listed = np.zeros((2, end - start, chunk.n_experts))
        rank[item[here] - start, expert[here]] = chunk.entry_rank[here]
        listed[item[here] - start, expert[here]] = 1.0
        behind = listed @ rank.T - rank @ listed.T  # by how much the second item stands behind the first
        score[start:end] = np.sign(np.round(behind, 6)).sum(axis=1)
    return score


def _places(chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
    """The query and the item of every entry, both counted through the chunk."""
    lists = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
    query = np.repeat(lists, np.diff(chunk.entry_offsets))
    return query, chunk.item_offsets[query] + chunk.entry_item


RULES: dict[str, Callable[[Chunk], Floats]] = {"points": points, "net_wins": net_wins}


def rule_row(dataset: Dataset, rule: str, backwards: bool = False) -> dict[str, Any]:
    """A rule on the five folds, as ``experiments.model_row``."""
    return five_folds(turned_round(dataset) if backwards else dataset, lambda fold: RULES[rule], [])
