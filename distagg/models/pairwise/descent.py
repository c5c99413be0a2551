"""Bradley-Terry scores by plain gradient steps of one length (Volkovs & Zemel 2014, section 2.7).

Stopped early, such a fit is shrunk by support: a score moves in proportion to what an item won and lost, so that thinly
compared items stay near the middle. Cost: O(edges) a step.
"""

from __future__ import annotations

import numpy as np

from distagg.jit import kernel
from distagg.models.pairwise.graph import Graph
from distagg.models.pairwise.kernels import Fit, longest_step, slopes_at
from distagg.models.pairwise.links import Slopes
from distagg.types import Floats, Offsets


@kernel
def left_to_go(slopes: Slopes) -> float:
    """The longest step that any score alone would still take; infinity if one has a slope and no curvature."""
    for i in range(len(slopes.gradient)):
        if slopes.diagonal[i] == 0.0 and slopes.gradient[i] != 0.0:
            return np.inf
    return longest_step(slopes.gradient, slopes.diagonal)


@kernel
def overflows(x: Floats, gradient: Floats, rate: float) -> bool:
    """Whether the squares of x after a gradient step are too large for a number."""
    total = 0.0
    for i in range(len(x)):
        total += (x[i] - rate * gradient[i]) ** 2
    return not np.isfinite(total)


@kernel
def descend_queries(
    how: Fit,
    rate: float,  # length of a step
    graph: Graph,
    weight: Floats,  # (Q,) of the prior
    centre: Floats,  # (I,) of a gaussian prior
    score: Floats,  # (I,) where to start, filled
    iterations: Offsets,  # (Q,) filled
    left: Floats,  # (Q,) filled: the longest step that any score alone would still take
) -> None:
    """Take up to ``how.steps`` steps down the negative log likelihood and prior of every query.

    Steps that are too long end before scores overflow.
    """
    curve = np.empty(len(graph.other))
    for q in range(len(graph.item_offsets) - 1):
        base, size = graph.item_offsets[q], graph.item_offsets[q + 1] - graph.item_offsets[q]
        s = np.zeros(size + 1)  # the scores, and no tie parameter
        for i in range(size):
            s[i] = score[base + i]
        slopes = Slopes(np.empty(size + 1), np.empty(size + 1), np.empty(size + 1), curve)
        iterations[q] = 0
        while True:
            slopes_at(how, graph, q, weight[q], centre[base : base + size], s, slopes)
            left[q] = left_to_go(slopes)
            if left[q] <= how.tolerance or iterations[q] == how.steps or overflows(s, slopes.gradient, rate):
                break
            iterations[q] += 1
            for i in range(size):
                s[i] -= rate * slopes.gradient[i]
        for i in range(size):
            score[base + i] = s[i]
