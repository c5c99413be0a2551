"""Bradley-Terry strengths and the tie parameter by Newman's iteration (Newman 2023): O(distinct pairs) a sweep."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.types import Floats, Indices, Labels, Offsets

LARGEST_TURN = 2.0  # of the logarithm of the tie parameter, or of a level, in one sweep


class Opponents(NamedTuple):
    """All opponents of every item: each pair stands in the rows of both."""

    item_offsets: Offsets  # (Q + 1,)
    offsets: Offsets  # (I + 1,)
    other: Indices  # (2 E,)
    won: Floats  # (2 E,) half of ties included
    lost: Floats  # (2 E,)
    ties: Floats  # (Q,)
    component: Labels  # (I,) connected components, from 0 in each query


@kernel
def strengthen(rows: Opponents, base: int, weight: float, tie: float, root: Floats) -> float:
    """Set every item of a query to its new strength, one after the other; returns the largest change of a logarithm.

    ``root`` (size,) holds the roots of strengths, ``tie`` Newman's nu: a tie has odds 2 nu against the two wins.
    """
    change = 0.0
    for i in range(len(root)):
        mine = root[i]
        prior = weight / (1.0 + mine * mine)
        up, down = prior, prior
        for e in range(rows.offsets[base + i], rows.offsets[base + i + 1]):
            theirs = root[rows.other[e]]
            z = mine * mine + theirs * theirs + 2.0 * tie * mine * theirs
            up += rows.won[e] * (theirs * theirs + tie * mine * theirs) / z
            down += rows.lost[e] * (1.0 + tie * theirs / mine) / z
        if up > 0.0 and down > 0.0:
            root[i] = math.sqrt(up / down)
            change = max(change, 2.0 * abs(math.log(root[i] / mine)))
    return change


@kernel
def set_levels(root: Floats, component: Labels) -> float:
    """Shift the log strengths of every component towards the prior's centre, by a Newton step; returns the largest.

    The comparisons do not determine the level of a component, so sweeps alone would move it slowly.
    """
    slope, curve = np.zeros(len(root)), np.zeros(len(root))  # of components, of which there are no more than items
    for i in range(len(root)):
        chance = root[i] * root[i] / (1.0 + root[i] * root[i])
        slope[component[i]] += 1.0 - 2.0 * chance
        curve[component[i]] += 2.0 * chance * (1.0 - chance)
    largest = 0.0
    for i in range(len(root)):
        turn = slope[component[i]] / curve[component[i]]
        turn = min(max(turn, -LARGEST_TURN), LARGEST_TURN)
        root[i] *= math.exp(0.5 * turn)
        largest = max(largest, abs(turn))
    return largest


@kernel
def set_tie(rows: Opponents, q: int, root: Floats, tie: float) -> float:
    """One Newton step of the logarithm of the tie parameter towards its maximum, given the strengths."""
    base = rows.item_offsets[q]
    expected, curve = 0.0, 0.0
    for i in range(len(root)):
        for e in range(rows.offsets[base + i], rows.offsets[base + i + 1]):
            j = rows.other[e]
            if j > i:
                cross = 2.0 * tie * root[i] * root[j]
                chance = cross / (root[i] * root[i] + root[j] * root[j] + cross)
                number = rows.won[e] + rows.lost[e]
                expected += number * chance
                curve += number * chance * (1.0 - chance)
    turn = (rows.ties[q] - expected) / curve
    return tie * math.exp(min(max(turn, -LARGEST_TURN), LARGEST_TURN))


@kernel
def newman_query(
    rows: Opponents,
    q: int,
    weight: float,  # wins and losses of every item against an imaginary one of strength 1
    learned: bool,  # whether ties have a parameter; it stays 0 where there are none
    tolerance: float,
    steps: int,
    root: Floats,  # (size,) filled
    tie: Floats,  # (Q,) filled
) -> tuple[int, float]:
    """Sweep over one query until nothing changes any more; returns sweeps, and the last change of a logarithm."""
    base, sweeps = rows.item_offsets[q], 0
    change = math.inf if len(root) > 0 else 0.0
    while change > tolerance and sweeps < steps:
        change = strengthen(rows, base, weight, tie[q], root)
        if weight > 0.0:
            change = max(change, set_levels(root, rows.component[base : base + len(root)]))
        if learned and tie[q] > 0.0:
            new = set_tie(rows, q, root, tie[q])
            change = max(change, abs(math.log(new / tie[q])))
            tie[q] = new
        sweeps += 1
    return sweeps, change


@kernel
def newman_queries(
    rows: Opponents,
    weight: float,
    learned: bool,
    tolerance: float,
    steps: int,
    tie: Floats,  # (Q,) where to start, filled
    taken: Offsets,  # (Q,) filled
    left: Floats,  # (Q,) filled
) -> Floats:  # (I,) log strengths
    """Fit every query by itself, starting from equal strengths."""
    score = np.zeros(rows.item_offsets[-1])
    for q in range(len(rows.item_offsets) - 1):
        base, end = rows.item_offsets[q], rows.item_offsets[q + 1]
        root = np.ones(end - base)
        taken[q], left[q] = newman_query(rows, q, weight, learned, tolerance, steps, root, tie)
        for i in range(end - base):
            score[base + i] = 2.0 * math.log(root[i])
    return score
