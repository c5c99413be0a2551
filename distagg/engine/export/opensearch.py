"""OpenSearch 3.9: a search pipeline with ``score-ranker-processor`` or ``normalization-processor``, and a hybrid query.

After the pages "Score ranker processor", "Normalization processor", "Hybrid query" and "Paginating hybrid query
results" of its documentation (weights of the score ranker are newer than 2.19, ``z_score`` and ``upper_bounds`` are of
3.x).
"""

from __future__ import annotations

from typing import Any

from distagg.engine.export.plain import Export, Fusion, check_sum, whole

TECHNIQUES = {"minmax": "min_max", "l2": "l2", "zmuv": "z_score"}
MOST_QUERIES = 5
MOST_CONSTANT = 10_000
DIGITS = 6  # of the shares that must add up to 1


def opensearch(fusion: Fusion) -> Export:
    """``pipeline`` is the body of ``PUT /_search/pipeline/NAME``, ``search`` that of ``GET /INDEX/_search``."""
    fusion = fusion.weighing()
    notes = (*fusion.notes, *fusion.depth_notes("pagination_depth"))
    notes += ("pagination_depth counts the items of each shard, not of the whole list: exact with one shard",)
    if len(fusion.experts) > MOST_QUERIES:
        notes += (f"OpenSearch refuses a hybrid query of more than {MOST_QUERIES} queries, this one has "
                  f"{len(fusion.experts)}: leave out those of small weight and tune again",)  # fmt: skip
    weights = {} if fusion.equal else {"parameters": {"weights": _shares(fusion.weights)}}
    if weights:
        notes += ("weights are divided by their sum, as OpenSearch wants; the order stays the same",)
    if not fusion.norm:
        constant, more = whole(fusion, "rank_constant", MOST_CONSTANT)
        processor: dict[str, Any] = {
            "score-ranker-processor": {"combination": {"technique": "rrf", "rank_constant": constant, **weights}}
        }
        notes += (*more, "equally ranked items of a list get different ranks from OpenSearch")
    else:
        check_sum(fusion, "OpenSearch", tuple(TECHNIQUES), bounds=True)
        normalization, more = _normalization(fusion)
        combination = {"technique": "arithmetic_mean", **weights}
        processor = {"normalization-processor": {"normalization": normalization, "combination": combination}}
        notes += more
    queries = [{"match": {"text": {"query": f"{{{{query for {name}}}}}"}}} for name in fusion.experts]
    value = {
        "pipeline": {"description": f"{fusion.rule}, tuned by distagg", "phase_results_processors": [processor]},
        "search": {"query": {"hybrid": {"pagination_depth": fusion.window, "queries": queries}}},
    }
    return Export(value, notes)


def _normalization(fusion: Fusion) -> tuple[dict[str, Any], tuple[str, ...]]:
    if any(fusion.bounds):
        low = [{"mode": "clip", "min_score": ends[0]} if ends else {"mode": "ignore"} for ends in fusion.bounds]
        high = [{"mode": "clip", "max_score": ends[1]} if ends else {"mode": "ignore"} for ends in fusion.bounds]
        return {"technique": "min_max", "parameters": {"lower_bounds": low, "upper_bounds": high}}, ()
    notes: tuple[str, ...] = ()
    if fusion.norm == "minmax":
        notes = ("min_max gives the last item of a list 0.001, the model 0",)
    if fusion.norm == "zmuv":
        notes = (
            "z_score gives every item at or below a list's mean 0.001 and absent items 0, so figures will differ from "
            "the tuned ones",
        )
    return {"technique": TECHNIQUES[fusion.norm]}, notes


def _shares(weights: tuple[float, ...]) -> list[float]:
    """Weights that add up to 1; the largest takes what rounding leaves."""
    total = sum(weights)
    shares = [round(weight / total, DIGITS) for weight in weights]
    most = shares.index(max(shares))
    shares[most] = round(1.0 - (sum(shares) - shares[most]), DIGITS)
    return shares
