"""Plackett-Luce on one query whose lists are spread over chunks: a round to count, then a round for each gradient.

Expected choices add up over lists, so a round is one pass over the entries and statistics of the size of the items.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.kernels.luce_graph import examine
from distagg.kernels.plackett_luce import Choices, count_choices, expect
from distagg.models.ascent import ascend, begin, lost, steps_taken
from distagg.models.base import Params, Statistics
from distagg.models.kept import kept
from distagg.models.luce_errors import compared
from distagg.models.outcome import ISOLATED, OK, UNBEATEN, WINLESS
from distagg.types import INDEX, Indices

if TYPE_CHECKING:
    from distagg.models.plackett_luce import PlackettLuce

ROUNDS = ("lbfgs", "mm")


def check(model: PlackettLuce) -> None:
    """What takes whole queries is refused."""
    wrong = {
        f"solver={model.solver}": model.solver not in ROUNDS,
        "prior=none": model.prior == "none",
        f"errors={model.errors}": model.errors != "none",
    }
    for setting, bad in wrong.items():
        if bad:
            raise UsageError(
                f"{model.name} with {setting} needs whole queries, and this one is spread over chunks; choose "
                f"solver=lbfgs, prior=gamma, errors=none (and --bootstrap for uncertainty)"
            )


def count(model: PlackettLuce, chunk: Chunk) -> Statistics:
    """What one chunk says of the comparison graph."""
    choices = _choices(model, chunk)
    wins, number = count_choices(choices, chunk.item_offsets)
    status, component = examine(choices, chunk.item_offsets, wins)
    beaten = (status == OK) | (status == WINLESS)
    counts = {"wins": wins, "number": number, "compared": compared(choices, chunk.item_offsets)}
    return {**counts, "lost": beaten, "component": component}


def expected(model: PlackettLuce, chunk: Chunk, theta: np.ndarray) -> Statistics:
    """How often theta expects each item to be chosen in the chunk's lists, and their log likelihood."""
    choices = _choices(model, chunk)
    x, found = np.empty(len(theta)), np.empty(len(theta))
    value = expect(choices, 0, 0.0, theta, x, found)
    return {"expected": found, "value": np.array([value])}


def merge(a: Statistics, b: Statistics) -> Statistics:
    summed = {name: a[name] + b[name] for name in a if name not in ("lost", "component")}
    if "lost" not in a:
        return summed
    return {**summed, "lost": a["lost"] | b["lost"], "component": join(a["component"], b["component"])}


def join(a: Indices, b: Indices) -> Indices:
    """Connected components of two graphs laid over one another, numbered in the order of their first items."""
    import scipy.sparse
    import scipy.sparse.csgraph

    n = int(a.max(initial=-1)) + 1
    size = n + int(b.max(initial=-1)) + 1
    edges = scipy.sparse.coo_array((np.ones(len(a), dtype=np.int8), (a, n + b)), shape=(size, size))
    label = scipy.sparse.csgraph.connected_components(edges, directed=False)[1][a]
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(INDEX)


def counted(statistics: Statistics) -> Params:
    """The state before the first gradient, at equal strengths."""
    won, lost_ = statistics["wins"] > 0.0, statistics["lost"]
    status = np.where(won, np.where(lost_, OK, UNBEATEN), np.where(lost_, WINLESS, ISOLATED)).astype(INDEX)
    known = {name: statistics[name] for name in ("wins", "number", "compared", "component")}
    none = {"ended": np.zeros(3), "trace": np.zeros(0)}
    return {**known, **none, "status": status, **begin(np.zeros(len(won))), "round": np.zeros(1)}


def moved(model: PlackettLuce, statistics: Statistics, params: Params) -> Params:
    """The next state: first a step of Hunter's, then L-BFGS; or Hunter's steps alone."""
    shape, wins, theta = float(model.shape), params["wins"], params["trial"]
    x = np.exp(theta - theta.max())
    chosen = statistics["expected"] + shape * len(x) * x / x.sum()
    uphill = wins + shape - chosen
    left = float(np.abs(uphill).max()) / max(float(params["number"][0]), 1.0)
    first = not params["round"][0]
    if model.solver == "mm":
        before = {**params, "theta": theta}
        taken = int(params["round"][0])
    elif first:
        before, taken = params, -1
    else:
        before = ascend(params, uphill, 0.5 * (wins + shape + chosen))
        taken = steps_taken(before)
    accepted = model.solver == "mm" or taken > steps_taken(params)
    if accepted and taken >= 0:
        trace = np.append(params["trace"], statistics["value"]) if taken > 0 else params["trace"]
        before = {**before, "ended": np.array([taken, left, float(statistics["value"][0])]), "trace": trace}
        if left <= model.tolerance or taken >= model.steps:
            return _over(before)
    if lost(before) or not params["number"][0]:
        return _over(before)
    if model.solver == "mm" or first:
        theta = theta + np.log((wins + shape) / chosen)
        before = {**before, "trial": theta, "theta": theta}
    return {**before, "round": params["round"] + 1.0}


def _over(state: Params) -> Params:
    kept_ = ("theta", "status", "component", "compared", "ended", "trace")
    return {**{name: state[name] for name in kept_}, "over": np.ones(1)}


def _choices(model: PlackettLuce, chunk: Chunk) -> Choices:
    return kept(chunk, ("choices", model.unlisted), model.choices)
