"""Ratings that change from battle to battle (Elo) or from period to period (Glicko-2)."""

from __future__ import annotations

import math
from typing import NamedTuple

from distagg.jit import kernel
from distagg.types import Bools, Floats, Offsets

GLICKO = 173.7178  # points of a rating for each unit of Glicko-2's own scale
SETTLED = 1e-9  # of the logarithm of a squared volatility


class Battles(NamedTuple):
    """Battles in the order in which they happened, items by their rows in the chunk."""

    winner: Offsets  # (P,)
    loser: Offsets  # (P,)
    weight: Floats  # (P,)
    tie: Bools  # (P,)


@kernel
def replay_elo(battles: Battles, k: float, scale: float, rating: Floats) -> None:
    """Move the ratings (I,) of both sides after every battle, by k times its weight times the surprise."""
    for p in range(len(battles.winner)):
        i, j = battles.winner[p], battles.loser[p]
        expected = 1.0 / (1.0 + 10.0 ** ((rating[j] - rating[i]) / scale))
        gain = k * battles.weight[p] * ((0.5 if battles.tie[p] else 1.0) - expected)
        rating[i] += gain
        rating[j] -= gain


class Players(NamedTuple):
    """The state of every item, on Glicko-2's own scale: (I,) each."""

    rating: Floats
    deviation: Floats
    volatility: Floats
    period: Offsets  # the period after which this was so; -1 before an item's first battle
    information: Floats  # sums over the battles of the present period, 0 between periods
    gain: Floats


@kernel
def replay_glicko(battles: Battles, period: Offsets, tau: float, widest: float, players: Players) -> None:
    """Rate period by period (Glickman 2013). ``period`` (P,) does not fall; deviations grow up to ``widest``."""
    first = 0
    while first < len(period):
        end = first
        while end < len(period) and period[end] == period[first]:
            end += 1
        for p in range(first, end):
            rest(players, battles.winner[p], period[first] - 1, widest)
            rest(players, battles.loser[p], period[first] - 1, widest)
        for p in range(first, end):
            score = 0.5 if battles.tie[p] else 1.0
            meet(players, battles.winner[p], battles.loser[p], battles.weight[p], score)
            meet(players, battles.loser[p], battles.winner[p], battles.weight[p], 1.0 - score)
        for p in range(first, end):
            rate(players, battles.winner[p], period[first], tau)
            rate(players, battles.loser[p], period[first], tau)
        first = end


@kernel
def rest(players: Players, i: int, period: int, widest: float) -> None:
    """Let the deviation of an item grow for the periods up to ``period`` in which it did not fight."""
    idle = period - players.period[i]
    if players.period[i] >= 0 and idle > 0:
        grown = players.deviation[i] ** 2 + idle * players.volatility[i] ** 2
        players.deviation[i] = min(math.sqrt(grown), max(widest, players.deviation[i]))
        players.period[i] = period


@kernel
def rest_all(players: Players, period: Offsets, widest: float) -> None:
    """The same for all items, each up to a period of its own (I,)."""
    for i in range(len(period)):
        rest(players, i, period[i], widest)


@kernel
def meet(players: Players, i: int, j: int, weight: float, score: float) -> None:
    """Add a battle to the sums of item i. Ratings and deviations are those before the period."""
    damp = 1.0 / math.sqrt(1.0 + 3.0 * (players.deviation[j] / math.pi) ** 2)
    expected = 1.0 / (1.0 + math.exp(-damp * (players.rating[i] - players.rating[j])))
    players.information[i] += weight * damp * damp * expected * (1.0 - expected)
    players.gain[i] += weight * damp * (score - expected)


@kernel
def rate(players: Players, i: int, period: int, tau: float) -> None:
    """The state of item i after a period, from its sums; nothing where it has been rated already."""
    if players.information[i] == 0.0:
        return
    variance = 1.0 / players.information[i]
    delta = variance * players.gain[i]
    volatility = next_volatility(players.deviation[i], players.volatility[i], delta, variance, tau)
    before = players.deviation[i] ** 2 + volatility * volatility
    players.deviation[i] = 1.0 / math.sqrt(1.0 / before + players.information[i])
    players.rating[i] += players.deviation[i] ** 2 * players.gain[i]
    players.volatility[i], players.period[i] = volatility, period
    players.information[i] = players.gain[i] = 0.0


@kernel
def volatility_slope(x: float, start: float, deviation: float, delta: float, variance: float, tau: float) -> float:
    """Glickman's f: its root is the logarithm of the new squared volatility."""
    spread = deviation * deviation + variance + math.exp(x)
    return math.exp(x) * (delta * delta - spread) / (2.0 * spread * spread) - (x - start) / (tau * tau)


@kernel
def next_volatility(deviation: float, volatility: float, delta: float, variance: float, tau: float) -> float:
    """The root of ``volatility_slope`` by the Illinois method (Glickman 2013, step 5)."""
    start = math.log(volatility * volatility)
    low = start
    excess = delta * delta - deviation * deviation - variance
    high = math.log(excess) if excess > 0.0 else start - tau
    while excess <= 0.0 and volatility_slope(high, start, deviation, delta, variance, tau) < 0.0:
        high -= tau
    at_low = volatility_slope(low, start, deviation, delta, variance, tau)
    at_high = volatility_slope(high, start, deviation, delta, variance, tau)
    while abs(high - low) > SETTLED:
        new = low + (low - high) * at_low / (at_high - at_low)
        at_new = volatility_slope(new, start, deviation, delta, variance, tau)
        if at_new * at_high <= 0.0:
            low, at_low = high, at_high
        else:
            at_low /= 2.0
        high, at_high = new, at_new
    return math.exp(low / 2.0)
