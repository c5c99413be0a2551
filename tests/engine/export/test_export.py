"""Queries of search engines: golden files, the products' published shapes, and the numbers they would compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from objections import objections

from distagg.engine.export import PRODUCTS, export
from distagg.engine.export.plain import Fusion
from distagg.errors import UsageError
from distagg.models import model_named

HERE = Path(__file__).parent
EXPERTS = ("bm25", "dense")
NO_BOUNDS = (None, None)
FUSIONS = {
    "rrf": Fusion("rrf", EXPERTS, (1.0, 1.0), 50, 50, c=60.0, bounds=NO_BOUNDS),
    "weighted": Fusion("rrf", EXPERTS, (1.0, 2.5), 100, 100, c=20.0, bounds=NO_BOUNDS),
    "minmax": Fusion("combsum", EXPERTS, (0.5, 1.5), 0, 100, norm="minmax", unlisted="least", bounds=NO_BOUNDS),
    "l2": Fusion("combsum", EXPERTS, (1.0, 1.0), 30, 30, norm="l2", unlisted="least", bounds=NO_BOUNDS),
    "zmuv": Fusion("combsum", EXPERTS, (1.0, 3.0), 30, 30, norm="zmuv", unlisted="least", bounds=NO_BOUNDS),
    "dbsf": Fusion("combsum", EXPERTS, (1.0, 3.0), 30, 30, norm="dbsf", unlisted="least", bounds=NO_BOUNDS),
    "bounds": Fusion(
        "combsum", EXPERTS, (1.0, 3.0), 30, 30, norm="minmax", unlisted="least", bounds=((0.0, 40.0), (-1.0, 1.0))
    ),
}
CASES = [
    *[(product, kind) for product in PRODUCTS for kind in ("rrf", "weighted")],
    *[(product, "minmax") for product in ("elasticsearch", "opensearch", "vespa", "json")],
    *[(product, "bounds") for product in ("opensearch", "qdrant", "vespa", "json")],
    ("elasticsearch", "l2"),
    ("opensearch", "zmuv"),
    ("qdrant", "dbsf"),
]


@pytest.mark.parametrize(("product", "kind"), CASES)
def test_golden_files(product: str, kind: str) -> None:
    value, notes = PRODUCTS[product].write(FUSIONS[kind])
    assert {"value": value, "notes": list(notes)} == json.loads((HERE / f"{product}-{kind}.json").read_text())


# The shapes that the products document: Elasticsearch's retrievers (9.2), OpenSearch's processors (3.9), Qdrant's
# OpenAPI description (1.19), each cut down to the fields that a fusion has.
def record(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


NUMBER, TEXT, COUNT = {"type": "number", "minimum": 0}, {"type": "string"}, {"type": "integer", "minimum": 1}
QUERY = {"type": "object"}
WINDOW = {"rank_window_size": COUNT}
CHILD = {"retriever": record(("standard",), standard=record(("query",), query=QUERY)), "weight": NUMBER}
LINEAR_CHILD = CHILD | {"normalizer": {"type": "string", "enum": ["none", "minmax", "l2_norm"]}}
RRF = record(("retrievers",), retrievers={"type": "array", "items": record((), **CHILD)}, rank_constant=COUNT, **WINDOW)
LINEAR = record(("retrievers",), retrievers={"type": "array", "items": record((), **LINEAR_CHILD)}, **WINDOW)
ELASTICSEARCH = record(("retriever",), retriever={"anyOf": [record(("rrf",), rrf=RRF), record((), linear=LINEAR)]})

SHARES = record((), weights={"type": "array", "items": NUMBER})
MODE = {"type": "string", "enum": ["apply", "clip", "ignore"]}
LOW = record((), mode=MODE, min_score={"type": "number", "minimum": -10_000})
HIGH = record((), mode=MODE, max_score={"type": "number", "minimum": -10_000})
LIMITS = record((), lower_bounds={"type": "array", "items": LOW}, upper_bounds={"type": "array", "items": HIGH})
RANKER = record(("technique",), technique={"type": "string", "enum": ["rrf"]}, rank_constant=COUNT, parameters=SHARES)
MEANS = {"type": "string", "enum": ["arithmetic_mean", "geometric_mean", "harmonic_mean"]}
NORMS = {"type": "string", "enum": ["min_max", "l2", "z_score"]}
PROCESSOR = {
    "anyOf": [
        record(("score-ranker-processor",), **{"score-ranker-processor": record(("combination",), combination=RANKER)}),
        record(
            ("normalization-processor",),
            **{
                "normalization-processor": record(
                    (),
                    normalization=record((), technique=NORMS, parameters=LIMITS),
                    combination=record((), technique=MEANS, parameters=SHARES),
                )
            },
        ),
    ]
}
HYBRID = record(("queries",), queries={"type": "array", "items": QUERY}, pagination_depth=COUNT)
OPENSEARCH = record(
    ("pipeline", "search"),
    pipeline=record((), description=TEXT, phase_results_processors={"type": "array", "items": PROCESSOR}),
    search=record(("query",), query=record(("hybrid",), hybrid=HYBRID)),
)

EXPRESSION: dict[str, Any] = {"anyOf": [{"type": "number"}, TEXT]}
EXPRESSION["anyOf"] += [record((name,), **{name: {"type": "array", "items": EXPRESSION}}) for name in ("mult", "sum")]
FORMULA = record(("formula",), formula=EXPRESSION, defaults=QUERY)
FUSING = [
    record(("fusion",), fusion={"type": "string", "enum": ["rrf", "dbsf"]}),
    record(("rrf",), rrf=record((), k=COUNT, weights={"type": "array", "items": {"type": "number"}})),
]
PREFETCH: dict[str, Any] = record((), query={"anyOf": [TEXT, *FUSING]}, using=TEXT, limit=COUNT)
PREFETCH["properties"]["prefetch"] = {"type": "array", "items": PREFETCH}
QDRANT = record(
    ("prefetch", "query"), prefetch={"type": "array", "items": PREFETCH}, query={"anyOf": [*FUSING, FORMULA]}
)
SHAPES = {"elasticsearch": ELASTICSEARCH, "opensearch": OPENSEARCH, "qdrant": QDRANT}


@pytest.mark.parametrize(("product", "kind"), [case for case in CASES if case[0] in SHAPES])
def test_the_documented_shapes_hold(product: str, kind: str) -> None:
    value, _ = PRODUCTS[product].write(FUSIONS[kind])
    assert list(objections(value, SHAPES[product])) == []
    assert list(objections({"retriever": {"rrf": {}}}, ELASTICSEARCH))  # the check itself refuses


def test_opensearchs_shares_add_up_to_one() -> None:
    fusion = Fusion("rrf", tuple("abc"), (1.0, 1.0, 5.0), 10, 10, c=60.0, bounds=(None,) * 3)
    value, _ = PRODUCTS["opensearch"].write(fusion)
    (processor,) = value["pipeline"]["phase_results_processors"]
    weights = processor["score-ranker-processor"]["combination"]["parameters"]["weights"]
    assert sum(weights) == 1.0
    assert weights == pytest.approx([1 / 7, 1 / 7, 5 / 7], abs=1e-6)


def computed(expression: Any, scores: list[float]) -> float:
    """A formula of Qdrant's, computed."""
    if isinstance(expression, str):
        return scores[int(expression.removeprefix("$score[").removesuffix("]"))]
    if isinstance(expression, dict):
        ((name, parts),) = expression.items()
        values = [computed(part, scores) for part in parts]
        product = 1.0
        for one in values:
            product *= one
        return sum(values) if name == "sum" else product
    return float(expression)


def test_qdrants_formula_is_the_weighted_sum() -> None:
    value, notes = PRODUCTS["qdrant"].write(FUSIONS["weighted"])
    assert [row["query"] for row in value["prefetch"]] == [{"rrf": {"k": 21}}] * 2
    first, third = 1 / (0 + 21), 1 / (2 + 21)  # Qdrant counts positions from 0
    assert computed(value["query"]["formula"], [first, third]) == pytest.approx(1 / (20 + 1) + 2.5 / (20 + 3))
    assert any("shard" in note for note in notes)
    bounded, _ = PRODUCTS["qdrant"].write(FUSIONS["bounds"])
    assert computed(bounded["query"]["formula"], [20.0, 0.5]) == pytest.approx(0.5 + 3 * 0.75)
    assert computed(bounded["query"]["formula"], list(bounded["query"]["defaults"].values())) == 0.0


def test_lists_of_weight_0_are_left_out_and_named() -> None:
    fusion = Fusion("rrf", tuple("abc"), (1.0, 0.0, 2.0), 10, 10, c=60.0, bounds=(None,) * 3)
    value, notes = PRODUCTS["elasticsearch"].write(fusion)
    assert [row["weight"] for row in value["retriever"]["rrf"]["retrievers"]] == [1.0, 2.0]
    assert any("weight 0 are left out: b" in note for note in notes)


@pytest.mark.parametrize(
    ("product", "changes", "words"),
    [
        ("elasticsearch", {"norm": "sum"}, "has no norm 'sum'"),
        ("elasticsearch", {"bounds": ((0.0, 1.0), None)}, "given bounds"),
        ("opensearch", {"rule": "combmnz"}, "number of lists that hold an item"),
        ("vespa", {"unlisted": "ignore"}, "unlisted=ignore"),
        ("qdrant", {"norm": "minmax"}, "has no norm 'minmax'"),
    ],
)
def test_what_a_product_cannot_compute_is_refused(product: str, changes: dict[str, Any], words: str) -> None:
    settings = {"rule": "combsum", "experts": EXPERTS, "weights": (1.0, 2.0), "depth": 10, "window": 10}
    fusion = Fusion(**{**settings, "norm": "minmax", "bounds": NO_BOUNDS, **changes})
    with pytest.raises(UsageError, match=words):
        PRODUCTS[product].write(fusion)


def test_a_constant_that_is_no_whole_number_is_said() -> None:
    value, notes = export(model_named("rrf", {"c": 0.4}), "elasticsearch", EXPERTS)
    assert value["retriever"]["rrf"]["rank_constant"] == 1
    assert any("1 stands for c=0.4" in note for note in notes)
    exact, notes = export(model_named("rrf", {"c": 0.4}), "vespa", EXPERTS)
    assert any("reciprocal_rank(list_bm25, 0.4)" in line for line in exact["schema"])
    assert not any("stands for c" in note for note in notes)


def test_other_models_and_products_are_refused() -> None:
    for name in ("crf", "combgmnz"):
        with pytest.raises(UsageError, match="expected rrf, combsum or combmnz"):
            export(model_named(name), "json", EXPERTS)
    with pytest.raises(UsageError, match="found 1 experts, expected two or more"):
        export(model_named("rrf"), "elasticsearch", ["bm25"])
    with pytest.raises(UsageError, match="did you mean 'elasticsearch'"):
        export(model_named("rrf"), "elasticsearhc", EXPERTS)


def test_names_that_vespa_cannot_hold() -> None:
    value, _ = export(model_named("rrf"), "vespa", ["a b", "a-b", "c"])
    assert value["schema"][-2] == "    match-features: list_a_b_1 list_a_b_2 list_c"
