"""Rules that the papers' figures come from and that are no model here: scores from the lists of a chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from distagg.dataset import Dataset
from distagg.dataset.chunk import Chunk
from distagg.types import Floats
from jobs.reproduce.experiments import five_folds, placed


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
    score = np.zeros(chunk.n_items)
    for items, rank, listed in _matrices(chunk):
        score[items] = np.sign(np.round(_behind(rank, listed), 6)).sum(axis=1)
    return score


def projection(chunk: Chunk) -> Floats:
    """Row means of the projection on rank 2 of mean rank differences: the first step of SVP (Gleich & Lim 2011).

    Of two items that no list holds together the difference is 0. Items in no list are last.
    """
    score = np.zeros(chunk.n_items)
    for items, rank, listed in _matrices(chunk):
        u, size, v = np.linalg.svd(_behind(rank, listed) / np.maximum(listed @ listed.T, 1.0))
        score[items] = ((u[:, :2] * size[:2]) @ v[:2]).mean(axis=1)
        score[items][~listed.any(axis=1)] = -np.inf
    return score


def _matrices(chunk: Chunk) -> Iterator[tuple[slice, Floats, Floats]]:
    """For every query the span of its items, and two matrices of items and experts: ranks (or 0), and 1 if listed."""
    query, item = _places(chunk)
    expert = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
    for q, (start, end) in enumerate(zip(chunk.item_offsets[:-1], chunk.item_offsets[1:], strict=True)):
        here = query == q
        rank, listed = np.zeros((2, end - start, chunk.n_experts))
        rank[item[here] - start, expert[here]] = chunk.entry_rank[here]
        listed[item[here] - start, expert[here]] = 1.0
        yield slice(start, end), rank, listed


def _behind(rank: Floats, listed: Floats) -> Floats:
    """By how much the second item of every pair stands behind the first, summed over the lists that hold both."""
    behind: Floats = listed @ rank.T - rank @ listed.T
    return behind


def _places(chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
    """The query and the item of every entry, both counted through the chunk."""
    lists = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
    query = np.repeat(lists, np.diff(chunk.entry_offsets))
    return query, chunk.item_offsets[query] + chunk.entry_item


RULES: dict[str, Callable[[Chunk], Floats]] = {"points": points, "net_wins": net_wins, "projection": projection}


def rule_row(dataset: Dataset, rule: str, backwards: bool = False, places: bool = False) -> dict[str, Any]:
    """A rule on the five folds, as ``experiments.model_row``; ``places`` takes places in the lists for ranks."""
    if backwards or places:
        dataset = placed(dataset, backwards=backwards)
    return five_folds(dataset, lambda fold: RULES[rule], [])
