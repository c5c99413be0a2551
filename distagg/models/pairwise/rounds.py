"""bradley_terry (and thurstone) on one query whose lists are spread over chunks.

Two routes to the same scores. ``counts``: every chunk counts its pairs, counts merge over chunks, a block of items (by
a pair's lower item) in each round, and the fit runs on all of them where the ranking is made; a merge needs memory for
a block, the fit for distinct pairs. ``lists``: a round of map and reduce for each gradient
straight from the lists; memory grows with items, time with pairs x rounds. A first round measures both.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Params, Statistics
from distagg.models.lists import BINARY, LOG, NORMALISED
from distagg.models.outcome import ISOLATED, OK, UNBEATEN, WINLESS
from distagg.models.pairs import list_sums, pair_ranks, unlisted_last
from distagg.models.pairwise.counts import PAIR_BYTES, PAIRS_BYTES
from distagg.models.pairwise.kernels import CHANGES, SETTLED, ComparedLists, list_slopes
from distagg.models.pairwise.links import LOGIT
from distagg.models.plackett_luce.rounds import ascent_from
from distagg.optimise.components import connected_by, overlaid
from distagg.types import INDEX

if TYPE_CHECKING:
    from distagg.models.pairwise.solver import Pairwise

log = logging.getLogger("distagg")

COUNT_SECONDS = 1e-7  # to count a pair of a list
MERGE_SECONDS = 4e-7  # to merge and fit a distinct pair
SLOPE_SECONDS = 5e-9  # for a pair of a list, a round
ROUND_SECONDS = 0.01  # beside the pairs
ROUNDS = 40
MERGED_BYTES = 1 << 30  # of the counts of all chunks
SOUGHT = 1e-2  # tolerance of scores while the weight of the prior is sought
BLOCK_BYTES = 1 << 28  # of the counts that are merged in one round


def measure(model: Pairwise, chunk: Chunk) -> Statistics:
    """The number of pairs, in all and in the largest chunk; of items; and of pairs that only route=counts can take."""
    listed = np.diff(chunk.entry_offsets)
    left_out = listed * (chunk.n_items - listed) if unlisted_last(model.unlisted, chunk) else 0 * listed
    total = int((listed * (listed - 1) // 2 + left_out).sum()) + chunk.n_pairs
    numbers = {"all_pairs": total, "most": total, "items": chunk.n_items, "raw": int(left_out.sum()) + chunk.n_pairs}
    return {name: np.array([number]) for name, number in numbers.items()}


def decide(model: Pairwise, measured: Statistics) -> Params:
    """Choose the route by an estimate of its time, which is logged."""
    pairs, most, items = (float(measured[name][0]) for name in ("all_pairs", "most", "items"))
    cells = max(items * (items - 1) / 2, 1.0)
    distinct = cells * -np.expm1(-pairs / cells)  # were they spread evenly; they are fewer
    blocks = int(np.ceil(max(distinct * PAIR_BYTES, 1.0) / BLOCK_BYTES))
    counts = pairs * COUNT_SECONDS * blocks + distinct * MERGE_SECONDS
    lists = (pairs * SLOPE_SECONDS + ROUND_SECONDS) * ROUNDS
    able = model.link == LOGIT and model.prior == "gaussian" and model.errors == "none" and not measured["raw"][0]
    fits = distinct * PAIR_BYTES <= MERGED_BYTES and most * PAIR_BYTES <= PAIRS_BYTES
    route = model.route
    if route == "auto":
        route = "counts" if fits and (counts <= lists or not able) else "lists"
    log.info(
        "%s: %.3g pairs of lists, at most %.3g distinct (%.2g GB, %d blocks): about %.2g s by counts, %.2g s by lists; "
        "route=%s",
        model.name,
        pairs,
        distinct,
        distinct * PAIR_BYTES / 1e9,
        blocks,
        counts,
        lists,
        route,
    )
    if route == "lists" and not able:
        raise UsageError(
            f"{model.name}: {pairs:.2g} pairs by route=lists, which is for lists, bradley_terry with ties=half or "
            "ignore, prior=gaussian, errors=none and unlisted=ignore; choose these, or use fewer experts (--where)"
        )
    return {"route": np.array([float(route == "lists")]), "block": np.array([0.0, blocks, items])}


def block_counts(model: Pairwise, chunk: Chunk, block: np.ndarray) -> Statistics:
    """Counts of the pairs whose lower item is in a block; ``block`` is its number, and those of blocks and items."""
    counts = model.counting(chunk).count(chunk).directed()
    number, blocks, items = (int(value) for value in block)
    low = np.minimum(counts["pair_winner"], counts["pair_loser"])
    first, end = edge(number, blocks, items), edge(number + 1, blocks, items)
    here = (low >= first) & (low < end)
    kept = {name: counts[name][here] for name in ("pair_winner", "pair_loser", "pair_weight")}
    return {**kept, "ties": counts["ties"] * float(number == 0), "items": np.array([items])}


def edge(number: int, blocks: int, items: int) -> int:
    """The first item of a block. Blocks have equal numbers of pairs, so the first ones have fewer items."""
    return items if number >= blocks else int(items * (1.0 - np.sqrt(1.0 - number / blocks)))


def next_block(counts: Statistics, params: Params) -> Params:
    """The counts of the blocks so far, and the number of the next block; ``over`` after the last."""
    joined = {
        name: np.concatenate([params[name], counts[name]]) if name in params else counts[name]
        for name in ("pair_winner", "pair_loser", "pair_weight")
    }
    ties = counts["ties"] + params.get("ties", 0.0)
    block = params["block"] + np.array([1.0, 0.0, 0.0])
    over = {"over": np.ones(1)} if block[0] >= block[1] else {}
    return {**params, **joined, "ties": ties, "items": counts["items"], "block": block, **over}


def graph(model: Pairwise, chunk: Chunk) -> Statistics:
    """Who won and who lost something, and the connected components of the chunk's comparisons."""
    function, share = model.counting(chunk).function, model.tie_share
    won, behind, _ = list_sums(chunk, np.zeros(chunk.n_lists, dtype=np.int64), function)
    rows = chunk.entry_row()
    length = np.diff(chunk.entry_offsets)
    lists = np.repeat(np.arange(chunk.n_lists), length)
    compared = np.repeat(length > 1, length)
    if share == 0.0 or function != BINARY:  # ties compare nothing: a list whose items all tie joins none
        compared, share = np.bincount(lists, won, chunk.n_lists)[lists] > 0, 0.0
    component = connected_by(chunk.n_items, rows[compared], lists[compared])
    sums = [np.bincount(rows, side, chunk.n_items) for side in (won, behind)]
    if share:  # half of every tie
        tied = np.repeat(length - 1, length) - won - behind
        sums = [side + share * np.bincount(rows, tied, chunk.n_items) for side in sums]
    return {"won": sums[0], "behind": sums[1], "component": component}


def slopes(model: Pairwise, chunk: Chunk, score: np.ndarray, *, valued: bool) -> Statistics:
    """Gradient and curvature of a chunk's pairs at some scores."""
    function = model.counting(chunk).function
    value, scale = pair_ranks(chunk, function), np.ones(chunk.n_lists)
    length = np.diff(chunk.entry_offsets)
    if function in (NORMALISED, LOG):
        end = np.ones(chunk.n_lists)
        end[length > 0] = value[chunk.entry_offsets[1:][length > 0] - 1]
        value = np.log(value) if function == LOG else value
        end = np.log(end) if function == LOG else end
        scale = np.divide(1.0, end, out=np.zeros(len(end)), where=end > 0.0)
        value.setflags(write=False)
    lists = ComparedLists(function == BINARY, model.tie_share, chunk.entry_offsets, chunk.entry_item, value, scale)
    total, slope, curve = list_slopes(lists, score, valued)
    return {"slope": slope, "curve": curve, "value": np.array([total])}


def merge(a: Statistics, b: Statistics) -> Statistics:
    merged = {name: a[name] + b[name] for name in a if name not in ("component", "most", "items")}
    if "component" in a:
        merged["component"] = overlaid(a["component"], b["component"])
    if "items" in a:
        merged |= {"most": np.maximum(a["most"], b["most"]), "items": a["items"]}
    return merged


def started(model: Pairwise, statistics: Statistics) -> dict[str, Any]:
    """The state before the first gradient. Scores start at the log odds of winning."""
    won, lost_ = statistics["won"], statistics["behind"]
    start = ascent_from(np.log((won + 0.5) / (lost_ + 0.5)))
    status = np.where(won > 0, np.where(lost_ > 0, OK, UNBEATEN), np.where(lost_ > 0, WINLESS, ISOLATED)).astype(INDEX)
    return {
        "status": status,
        "component": statistics["component"],
        "compared": won + lost_,
        "weight": np.array([model.given_weight]),
        "changes": np.array([float(CHANGES * model.seeks)]),
        "ended": np.array([0.0, np.inf, 0.0]),
        "ascent": start,
        "trial": start.path.trial,
    }


def moved(model: Pairwise, statistics: Statistics, params: dict[str, Any]) -> dict[str, Any]:
    """The next state. After convergence, one more round computes the log likelihood."""
    if "last" in params:
        kept = {name: params[name] for name in ("route", "theta", "status", "component", "compared", "weight")}
        return {**kept, "ended": np.append(params["ended"][:2], statistics["value"]), "over": np.ones(1)}
    weight = float(params["weight"][0])
    uphill = statistics["slope"] - weight * params["trial"]
    curve = statistics["curve"] + weight
    ascent = params["ascent"].after(uphill, curve)
    theta = ascent.path.x
    after = {**params, "ascent": ascent, "trial": ascent.path.trial, "theta": theta}
    if ascent.steps > params["ascent"].steps:
        left = float(np.abs(uphill / curve).max(initial=0.0))
        steps = float(ascent.steps)
        after["ended"] = np.array([steps, left, 0.0])
        if params["changes"][0] and (left <= max(SOUGHT, model.tolerance) or steps >= model.steps):
            sought = _sought(theta, statistics["curve"], weight)
            settled = abs(sought - weight) <= SETTLED * weight or steps >= model.steps
            changes = 0.0 if settled else params["changes"][0] - 1.0
            again = {"ascent": ascent_from(theta), "trial": theta}
            return {**after, **again, "weight": np.array([sought]), "changes": np.array([changes])}
        if left <= model.tolerance or steps >= model.steps:
            return {**after, "trial": theta, "last": np.ones(1)}
    if ascent.lost:
        return {**after, "trial": theta, "last": np.ones(1)}
    return after


def _sought(theta: np.ndarray, curve: np.ndarray, weight: float) -> float:
    """The most likely weight of the prior, given the scores and the curvature of the data; see ``kernels``."""
    return float((1.0 + (curve / (curve + weight)).sum()) / (1.0 + (theta * theta).sum()))
