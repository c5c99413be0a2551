"""Elasticsearch, OpenSearch, Qdrant and Vespa: how each writes a fusion.

Elasticsearch 9.2 and newer: the retrievers ``rrf`` (weights since 9.2) and ``linear`` (since 8.18 and 9.0). After the
reference "RRF retriever" and "Linear retriever" of its REST APIs.

OpenSearch 3.9: a search pipeline with ``score-ranker-processor`` or ``normalization-processor``, and a hybrid query.
After the pages "Score ranker processor", "Normalization processor", "Hybrid query" and "Paginating hybrid query
results" of its documentation (weights of the score ranker are newer than 2.19, ``z_score`` and ``upper_bounds`` are of
3.x).

Qdrant 1.19 (``rrf`` with k since 1.16): the Query API's prefetches with ``rrf``, ``dbsf`` and ``formula``. After its
OpenAPI description (POST /collections/NAME/points/query). Qdrant scores a position p, counted from 0, with
1 / (p + k), so k is c + 1. Its own weights do not multiply: a list of weight w gives 1 / ((p + 1) / w + k - 1).
Unequal weights are therefore written as a formula, over one fused prefetch per list.

Vespa 8: a rank profile whose global phase adds ``reciprocal_rank`` or ``normalize_linear`` of rank features. After
"Phased ranking: cross-hit normalization including reciprocal rank fusion" of its documentation. The value holds the
lines of the schema, and as JSON the properties of a query that uses it.
"""

from __future__ import annotations

import re
from typing import Any

from distagg.engine.export.plain import Export, Fusion, check_sum, whole

NORMALIZERS = {"minmax": "minmax", "l2": "l2_norm"}


def elasticsearch(fusion: Fusion) -> Export:
    """The body of ``GET index/_search``."""
    fusion = fusion.weighing()
    notes = (*fusion.notes, *fusion.depth_notes("rank_window_size"))
    body: dict[str, Any] = {"rank_window_size": fusion.window}
    notes += ("rank_window_size must be at least the search's size, and is the same for all lists",)
    if not fusion.norm:
        constant, more = whole(fusion, "rank_constant")
        retrievers = [_weighted(*row) for row in zip(fusion.experts, fusion.weights, strict=True)]
        ties = "equally ranked items of a list get different ranks from Elasticsearch"
        value = {"retriever": {"rrf": {"retrievers": retrievers, "rank_constant": constant, **body}}}
        return Export(value, (*notes, *more, ties))
    check_sum(fusion, "Elasticsearch", tuple(NORMALIZERS), bounds=False)
    normalizer = NORMALIZERS[fusion.norm]
    retrievers = [
        _weighted(*row) | {"normalizer": normalizer} for row in zip(fusion.experts, fusion.weights, strict=True)
    ]
    if fusion.norm == "minmax":
        notes += ("where all scores of a list are equal, minmax keeps them as they are; the model takes 1",)
    return Export({"retriever": {"linear": {"retrievers": retrievers, **body}}}, notes)


def _weighted(expert: str, weight: float) -> dict[str, Any]:
    query = {"match": {"text": f"{{{{query for {expert}}}}}"}}
    return {"retriever": {"standard": {"query": query}}, "weight": weight}


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
        notes += (
            f"OpenSearch refuses a hybrid query of more than {MOST_QUERIES} queries, this one has "
            f"{len(fusion.experts)}: leave out those of small weight and tune again",
        )
    weights = {} if fusion.equal else {"parameters": {"weights": _shares(fusion.weights)}}
    if weights:
        notes += ("weights are divided by their sum, as OpenSearch requires; the order stays the same",)
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
    """Weights that add up to 1; the largest one absorbs the rounding error."""
    total = sum(weights)
    shares = [round(weight / total, DIGITS) for weight in weights]
    most = shares.index(max(shares))
    shares[most] = round(1.0 - (sum(shares) - shares[most]), DIGITS)
    return shares


SHARDS = (
    "inner prefetches are fused on each shard: in a collection of several shards, ranks and normalised scores are "
    "those within a shard; Qdrant's own rrf weights work across shards but do not multiply, so they are not used"
)


def qdrant(fusion: Fusion) -> Export:
    """The body of ``POST /collections/NAME/points/query``."""
    fusion = fusion.weighing()
    notes = (*fusion.notes, *fusion.depth_notes("limit"))
    lists = [{"query": f"{{{{query for {name}}}}}", "using": name, "limit": fusion.window} for name in fusion.experts]
    if fusion.norm and any(fusion.bounds):
        check_sum(fusion, "Qdrant", ("dbsf",), bounds=True)
        clipped = "scores outside their bounds become less than 0 or more than 1; the model cuts them off"
        return Export({"prefetch": lists, "query": _bounded(fusion)}, (*notes, clipped))
    if fusion.norm:
        check_sum(fusion, "Qdrant", ("dbsf",), bounds=False)
        inner: dict[str, Any] = {"fusion": "dbsf"}
        notes += ("where a list has one item, or all scores are equal, dbsf gives 0.5",)
    else:
        constant, more = whole(fusion, "k - 1")
        inner = {"rrf": {"k": constant + 1}}
        notes += (*more, "equally ranked items of a list get different ranks from Qdrant")
    if fusion.equal:
        return Export({"prefetch": lists, "query": inner}, notes)
    nested = [{"prefetch": [row], "query": inner, "limit": fusion.window} for row in lists]
    terms = [{"mult": [weight, f"$score[{n}]"]} for n, weight in enumerate(fusion.weights)]
    defaults = {f"$score[{n}]": 0.0 for n in range(len(terms))}
    return Export({"prefetch": nested, "query": {"formula": {"sum": terms}, "defaults": defaults}}, (*notes, SHARDS))


def _bounded(fusion: Fusion) -> dict[str, Any]:
    """Scores scaled by given bounds: (score - low) / (high - low), and 0 for items that a list leaves out."""
    terms, defaults = [], {}
    for n, (weight, ends) in enumerate(zip(fusion.weights, fusion.bounds, strict=True)):
        low, high = ends or (0.0, 1.0)
        terms.append({"mult": [weight / (high - low), {"sum": [f"$score[{n}]", -low]}]})
        defaults[f"$score[{n}]"] = low
    return {"formula": {"sum": terms}, "defaults": defaults}


HITS = (
    "Vespa ranks and normalises over all hits of the global phase (rerank-count), not over each expert's own list: an "
    "item that a list leaves out still gets its place by that list's feature"
)


def vespa(fusion: Fusion) -> Export:
    """``schema`` is a rank profile to put into the schema, ``query`` the properties of a query."""
    fusion = fusion.weighing()
    names = _functions(fusion.experts)
    notes = (*fusion.notes, *fusion.depth_notes("rerank-count"))
    if not fusion.norm:
        terms = [f"reciprocal_rank({name}, {_number(fusion.c)})" for name in names]
        notes += (HITS,)
    elif any(fusion.bounds):
        check_sum(fusion, "Vespa", ("minmax",), bounds=True)
        terms = [_scaled(name, ends) for name, ends in zip(names, fusion.bounds, strict=True)]
        notes += () if all(fusion.bounds) else (HITS,)
    else:
        check_sum(fusion, "Vespa", ("minmax",), bounds=False)
        terms = [f"normalize_linear({name})" for name in names]
        notes += (HITS,)
    weighted = [t if w == 1 else f"{_number(w)} * {t}" for w, t in zip(fusion.weights, terms, strict=True)]
    functions = []
    for name, expert in zip(names, fusion.experts, strict=True):
        functions += [f"    function {name}() {{", f"        expression: {{{{rank feature of {expert}}}}}", "    }"]
    schema = [
        "rank-profile fused inherits default {",
        *functions,
        "    first-phase {",
        f"        expression: {{{{rank feature that finds the first {fusion.window}}}}}",
        "    }",
        "    global-phase {",
        f"        rerank-count: {fusion.window}",
        f"        expression: {' + '.join(weighted)}",
        "    }",
        f"    match-features: {' '.join(names)}",
        "}",
    ]
    return Export({"schema": schema, "query": {"yql": "{{query}}", "ranking": "fused"}}, notes)


def _functions(experts: tuple[str, ...]) -> list[str]:
    """Names that Vespa's schema can hold, one for each expert."""
    names = ["list_" + re.sub(r"\W", "_", expert, flags=re.ASCII) for expert in experts]
    return [name if names.count(name) == 1 else f"{name}_{n + 1}" for n, name in enumerate(names)]


def _scaled(name: str, ends: tuple[float, float] | None) -> str:
    if ends is None:
        return f"normalize_linear({name})"
    low, high = ends
    return f"max(0, min(1, ({name} - {_number(low)}) / {_number(high - low)}))"


def _number(value: float) -> str:
    return f"{value:.12g}"
