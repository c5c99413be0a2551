"""HodgeRank kernels: least squares on the comparison graph, and how much of the residual runs round triangles.

The flow Y of a pair (i, j) says by how much i is preferred, with the weight w of its comparisons. Scores minimise
sum w (s_i - s_j - Y)^2, a linear system with the graph's Laplacian. What no scores explain, the residual R, is cyclic.
Its local part is the nearest flow to R that is made of triangles: with C the sum round a triangle and C* its adjoint,
C C* phi = C R, solved by conjugate gradients. The rest runs round longer cycles only.
Cost: edges a step; triangles are listed once, in O(sum of squared degrees).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distagg.jit import kernel
from distagg.models.pairwise.graph import Graph
from distagg.models.pairwise.kernels import longest_step, solve_step
from distagg.models.pairwise.links import Slopes
from distagg.optimise.linear import dot
from distagg.types import Floats, Offsets

CLOSE = 1e-7  # relative residual of the potential of triangles
RESTARTS = 20


class Flow(NamedTuple):
    """What the pairs of all queries say: (edges,) each, as ``Graph`` has them."""

    value: Floats  # by how much the row's item is preferred
    weight: Floats


@kernel
def rank_queries(
    graph: Graph,
    flow: Flow,
    tolerance: float,
    score: Floats,  # (I,) filled
    residual: Floats,  # (edges,) filled
    iterations: Offsets,  # (Q,) filled
    left: Floats,  # (Q,) filled: the longest step that any score alone would still take
) -> None:
    """Scores of every query by least squares; conjugate gradients begin again until they are close enough."""
    for q in range(len(graph.item_offsets) - 1):
        base, size = graph.item_offsets[q], graph.item_offsets[q + 1] - graph.item_offsets[q]
        slopes = Slopes(np.zeros(size + 1), np.zeros(size + 1), np.zeros(size + 1), flow.weight)
        step, s = np.zeros(size + 1), np.zeros(size)
        for restart in range(RESTARTS + 1):
            fill_slopes(graph, q, flow, s, slopes)
            left[q] = longest_step(slopes.gradient, slopes.diagonal)
            iterations[q] = restart
            if left[q] <= tolerance or restart == RESTARTS:
                break
            solve_step(graph, q, slopes, 1e-12, step)
            for i in range(size):
                s[i] += step[i]
        for i in range(size):
            score[base + i] = s[i]
            for e in range(graph.offsets[base + i], graph.offsets[base + i + 1]):
                residual[e] = flow.value[e] - s[i] + s[graph.other[e]]


@kernel
def fill_slopes(graph: Graph, q: int, flow: Flow, s: Floats, slopes: Slopes) -> None:
    """Half the gradient of the squares at scores s (size,), and the weights that meet at each item."""
    base = graph.item_offsets[q]
    for i in range(len(s) + 1):
        slopes.gradient[i], slopes.diagonal[i] = 0.0, 0.0
    for i in range(len(s)):
        for e in range(graph.offsets[base + i], graph.offsets[base + i + 1]):
            j, weight = graph.other[e], flow.weight[e]
            off = weight * (s[i] - s[j] - flow.value[e])
            slopes.gradient[i] += off
            slopes.gradient[j] -= off
            slopes.diagonal[i] += weight
            slopes.diagonal[j] += weight


@kernel
def list_triangles(graph: Graph, q: int, room: int) -> tuple[int, Offsets]:  # (room, 3)
    """The edges of every triangle i < j < k, as (ij, jk, ik), and their number; ``room + 1`` if there are more."""
    base, end = graph.item_offsets[q], graph.item_offsets[q + 1]
    triangles = np.empty((room, 3), dtype=np.int64)
    edge_to = np.full(end - base, -1, dtype=np.int64)
    count = 0
    for i in range(base, end):
        for e in range(graph.offsets[i], graph.offsets[i + 1]):
            edge_to[graph.other[e]] = e
        for e in range(graph.offsets[i], graph.offsets[i + 1]):
            j = base + graph.other[e]
            for f in range(graph.offsets[j], graph.offsets[j + 1]):
                third = edge_to[graph.other[f]]
                if third < 0:
                    continue
                if count == room:
                    return room + 1, triangles
                triangles[count, 0], triangles[count, 1], triangles[count, 2] = e, f, third
                count += 1
        for e in range(graph.offsets[i], graph.offsets[i + 1]):
            edge_to[graph.other[e]] = -1
    return count, triangles


@kernel
def curl(triangles: Offsets, edges: Floats, out: Floats) -> None:
    """C: the sum of a flow round every triangle, into ``out`` (T,)."""
    for t in range(len(out)):
        out[t] = edges[triangles[t, 0]] + edges[triangles[t, 1]] - edges[triangles[t, 2]]


@kernel
def spread(triangles: Offsets, phi: Floats, weight: Floats, edges: Floats) -> None:
    """C*: the flow that potentials (T,) of triangles make, into ``edges``."""
    for e in range(len(edges)):
        edges[e] = 0.0
    for t in range(len(phi)):
        edges[triangles[t, 0]] += phi[t]
        edges[triangles[t, 1]] += phi[t]
        edges[triangles[t, 2]] -= phi[t]
    for e in range(len(edges)):
        edges[e] /= weight[e]


@kernel
def local_part(graph: Graph, q: int, weight: Floats, residual: Floats, room: int) -> float:
    """The squared norm of the part of a query's residual that triangles make; nan if there are more than ``room``."""
    first, end = graph.offsets[graph.item_offsets[q]], graph.offsets[graph.item_offsets[q + 1]]
    count, triangles = list_triangles(graph, q, room)
    if count > room:
        return np.nan
    triangles = triangles[:count] - first
    weight, edges = weight[first:end], residual[first:end].copy()
    rest, potential, back = np.empty(count), np.zeros(count), np.empty(count)
    curl(triangles, edges, rest)
    right, ahead = rest.copy(), rest.copy()
    now = dot(rest, rest)
    goal = CLOSE * CLOSE * now
    for _ in range(2 * len(edges) + 10):  # as many as the rank, but for rounding
        if now <= goal or now == 0.0:
            break
        spread(triangles, ahead, weight, edges)
        curl(triangles, edges, back)
        bend = dot(ahead, back)
        if bend <= 0.0:
            break
        alpha, before = now / bend, now
        for t in range(count):
            potential[t] += alpha * ahead[t]
            rest[t] -= alpha * back[t]
        now = dot(rest, rest)
        for t in range(count):
            ahead[t] = rest[t] + now / before * ahead[t]
    return dot(potential, right)
