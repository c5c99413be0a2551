"""Lists put in order: entries by rank, then item position; ranks from scores where a list gives scores alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distagg.errors import InputError
from distagg.types import RANK, Bools, Floats, Indices


@dataclass(frozen=True, slots=True, eq=False)
class OrderedLists:
    position: Indices  # (E,) item
    rank: Floats  # (E,) ascending inside a list
    score: Floats | None  # (E,)
    ties: int  # entries that share their rank with another entry of their list


def find_repeated(starts: NDArray[np.intp], position: Indices) -> int | None:
    """The first row whose item stands in its list already."""
    n = len(position)
    width = int(position.max(initial=0)) + 1
    first: NDArray[np.integer] = np.arange(len(starts)) * width  # cell of the list's item 0
    if len(starts) * width < 2**31:
        first = first.astype(np.int32)  # sorting half as many bytes takes half the time
    cell = np.repeat(first, np.diff(starts, append=n)) + position
    ordered = np.sort(cell)  # vectorised by numpy: much faster than hashing
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return None
    rows = np.flatnonzero(np.isin(cell, repeated))
    _, mentioned = np.unique(cell[rows], return_index=True)
    return int(np.delete(rows, mentioned)[0])


def order_lists(starts: NDArray[np.intp], position: Indices, rank: Floats, score: Floats | None) -> OrderedLists:
    """Sort every list by rank, then item position.

    Parameters
    ----------
    starts : (L,)
        First row of every list.
    rank : (E,)
        NaN in lists that are ranked by score: rank = 1 + number of strictly larger scores.

    >>> lists = order_lists(np.array([0]), np.arange(3, dtype=np.int32), np.full(3, np.nan), np.array([5.0, 7.0, 5.0]))
    >>> lists.position.tolist(), lists.rank.tolist(), lists.ties
    ([1, 0, 2], [1.0, 2.0, 2.0], 2)
    """
    n = len(position)
    if n == 0:
        return OrderedLists(position, rank, score, 0)
    lengths = np.diff(starts, append=n)
    by_score = _ranked_by_score(starts, rank)
    if by_score is None:
        key = rank
    elif by_score.all() and score is not None:
        key = -score
    else:
        assert score is not None
        key = np.where(np.repeat(by_score, lengths), -score, rank)
    if by_score is not None and np.isnan(key).any():
        raise InputError(
            "<list>", found="a list where some entries have only a rank, others only a score", expected="one of the two"
        )
    order = _by_key(starts, lengths, key)
    key = key if order is None else key[order]
    opens = np.empty(n, dtype=bool)  # where a run of equal ranks begins
    opens[0] = True
    np.not_equal(key[1:], key[:-1], out=opens[1:])
    opens[starts] = True
    first = np.flatnonzero(opens)
    tied = np.flatnonzero(~(opens & np.append(opens[1:], True)))
    order = _ties_by_position(order, tied, np.searchsorted(first, tied, side="right"), position)
    if order is not None:
        position = position[order]
        score = None if score is None else score[order]
    ranks = key
    if by_score is not None:
        runs = np.diff(np.searchsorted(first, starts), append=len(first))  # of every list
        place = first - np.repeat(starts, runs) + 1  # of the first entry of the run in its list
        ranks = np.repeat(place, np.diff(first, append=n)).astype(RANK)
        if not by_score.all():
            ranks = np.where(np.repeat(by_score, lengths), ranks, key)
    return OrderedLists(position, ranks, score, len(tied))


def _ranked_by_score(starts: NDArray[np.intp], rank: Floats) -> Bools | None:
    """Which lists lack a rank somewhere; None when none does."""
    missing = np.isnan(rank)
    return np.logical_or.reduceat(missing, starts) if missing.any() else None


def _by_key(starts: NDArray[np.intp], lengths: NDArray[np.intp], key: Floats) -> NDArray[np.intp] | None:
    """The order of all rows by key inside their list, or None when they have it: other lists are left alone."""
    falls = key[1:] < key[:-1]
    falls[starts[1:] - 1] = False  # from the last entry of a list to the first of the next
    if not falls.any():
        return None
    which = np.zeros(len(starts), dtype=bool)
    which[np.searchsorted(starts, np.flatnonzero(falls), side="right") - 1] = True
    rows = np.flatnonzero(np.repeat(which, lengths))
    lists = np.repeat(np.arange(len(starts)), lengths)[rows]
    order = np.arange(len(key))
    order[rows] = rows[np.lexsort((key[rows], lists))]
    return order


def _ties_by_position(
    order: NDArray[np.intp] | None, tied: NDArray[np.intp], run: NDArray[np.intp], position: Indices
) -> NDArray[np.intp] | None:
    """The order with tied rows by item position; ``run`` numbers the runs of equal ranks."""
    at = position[tied if order is None else order[tied]]
    cell = run * (int(at.max(initial=0)) + 1) + at  # no two alike: an item stands once in a list
    if not (cell[1:] < cell[:-1]).any():
        return order
    sorted_rows = tied[np.argsort(cell)]
    if order is None:
        order = np.arange(len(position))
        order[tied] = sorted_rows
    else:
        order[tied] = order[sorted_rows]
    return order
