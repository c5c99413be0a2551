"""Orders that complete partial ones, drawn from Mallows' distribution (Lu & Boutilier 2011).

What one expert says is a strict partial order: ``before[i, j]`` if i must stand before j. The sampler inserts the items
in the order of the centre, each at a place that the partial order allows, with odds exp(-theta pairs turned round). The
draws' distribution is Mallows' given the partial order, over the product of all normalisers; so they serve as proposals
of an independent Metropolis-Hastings chain, which has it exactly. Cost of a draw: O(items^2).
"""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.types import Bools, Floats, Offsets

BURN = 2  # draws of a chain that do not count


@kernel
def close(before: Bools) -> int:
    """Close a relation (size, size) transitively, in place; pairs that contradict each other then say nothing.

    Returns how many unordered pairs contradict each other.
    """
    size, contradicted = len(before), 0
    for k in range(size):
        for i in range(size):
            if before[i, k]:
                for j in range(size):
                    before[i, j] = before[i, j] or before[k, j]
    for i in range(size):
        before[i, i] = False
        for j in range(i):
            if before[i, j] and before[j, i]:
                before[i, j] = before[j, i] = False
                contradicted += 1
    return contradicted


@kernel
def uniform(state: np.uint64) -> tuple[np.uint64, float]:
    """The next state of a stream, and a number in [0, 1)."""
    state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return state, (state >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def insert_all(
    before: Bools, centre: Offsets, theta: float, state: np.uint64, order: Offsets
) -> tuple[np.uint64, float]:
    """Draw an order by inserting the items of ``centre`` one after the other, within the bounds that ``before`` sets.

    Writes it to ``order`` (size,). Returns the next state of the random stream, and the sum of the logs of the
    insertions' normalising constants.
    """
    total = 0.0
    for m in range(len(centre)):
        item, low, high = centre[m], 0, m
        for place in range(m):
            if before[order[place], item]:
                low = place + 1
            if before[item, order[place]]:
                high = min(high, place)
        norm = 0.0
        for place in range(low, high + 1):
            norm += np.exp(-theta * (high - place))
        state, drawn = uniform(state)
        drawn *= norm
        place = high
        while place > low and drawn >= np.exp(-theta * (high - place)):
            drawn -= np.exp(-theta * (high - place))
            place -= 1
        for later in range(m, place, -1):
            order[later] = order[later - 1]
        order[place] = item
        total += np.log(norm) - theta * (m - high)
    return state, total


@kernel
def complete(
    before: Bools,  # (voters, size, size)
    centre: Offsets,  # (size,) items, the first one first
    theta: float,
    draws: int,
    state: np.uint64,
    chance: Floats,  # (size, size) filled: expected voters whose orders put i before j
) -> np.uint64:
    """Complete every voter's partial order by a chain of draws; returns the state of the stream."""
    size, voters = len(centre), len(before)
    chance[:] = 0.0
    here, tried = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    for v in range(voters):
        state, level = insert_all(before[v], centre, theta, state, here)
        for turn in range(BURN + draws):
            state, other = insert_all(before[v], centre, theta, state, tried)
            state, drawn = uniform(state)
            if drawn < np.exp(min(other - level, 0.0)):
                level = other
                for place in range(size):
                    here[place] = tried[place]
            if turn >= BURN:
                for place in range(size):
                    for later in range(place + 1, size):
                        chance[here[place], here[later]] += 1.0 / draws
    return state
