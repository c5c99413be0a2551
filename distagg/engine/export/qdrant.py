"""Qdrant 1.19 (``rrf`` with k since 1.16): the Query API's prefetches with ``rrf``, ``dbsf`` and ``formula``.

After its OpenAPI description (POST /collections/NAME/points/query). Qdrant scores a position p, counted from 0, with
1 / (p + k), so k is c + 1. Its own weights do not multiply: a list of weight w gives 1 / ((p + 1) / w + k - 1).
Unequal weights therefore stand in a formula over fused lists of one prefetch each.
"""

from __future__ import annotations

from typing import Any

from distagg.engine.export.plain import Export, Fusion, check_sum, whole

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
        clipped = "scores outside their bounds go on beyond 0 and 1; the model stops there"
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
    """Scores between given ends: (score - low) / (high - low), 0 for items that a list leaves out."""
    terms, defaults = [], {}
    for n, (weight, ends) in enumerate(zip(fusion.weights, fusion.bounds, strict=True)):
        low, high = ends or (0.0, 1.0)
        terms.append({"mult": [weight / (high - low), {"sum": [f"$score[{n}]", -low]}]})
        defaults[f"$score[{n}]"] = low
    return {"formula": {"sum": terms}, "defaults": defaults}
