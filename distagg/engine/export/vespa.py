"""Vespa 8: a rank profile whose global phase adds ``reciprocal_rank`` or ``normalize_linear`` of rank features.

After "Phased ranking: cross-hit normalization including reciprocal rank fusion" of its documentation. The value holds
the lines of the schema, and as JSON the properties of a query that uses it.
"""

from __future__ import annotations

import re

from distagg.engine.export.plain import Export, Fusion, check_sum

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
        "rank-profile fused inherits default {", *functions, "    first-phase {",
        f"        expression: {{{{rank feature that finds the first {fusion.window}}}}}", "    }", "    global-phase {",
        f"        rerank-count: {fusion.window}", f"        expression: {' + '.join(weighted)}", "    }",
        f"    match-features: {' '.join(names)}", "}",
    ]  # fmt: skip
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
