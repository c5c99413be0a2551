"""Elasticsearch 9.2 and newer: the retrievers ``rrf`` (weights since 9.2) and ``linear`` (since 8.18 and 9.0).

After the reference "RRF retriever" and "Linear retriever" of Elasticsearch's REST APIs.
"""

from __future__ import annotations

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
