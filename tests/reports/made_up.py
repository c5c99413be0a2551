"""Results that look like what ``distagg compare --json`` prints, made from a seed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np


def comparison(
    models: list[str], metrics: list[str], *, queries: int = 40, folds: int = 5, seed: int = 0
) -> dict[str, Any]:
    """A whole result, tests of all pairs included."""
    rng = np.random.default_rng(seed)
    figures = {m: {k: rng.random(queries).round(6) for k in metrics} for m in models}
    cuts = np.array_split(np.arange(queries), folds)
    results = [
        {"model": m, "fold": fold, "metric": k, "value": float(figures[m][k][cut].mean()), "seed": 0}
        for m in models
        for k in metrics
        for fold, cut in enumerate(cuts, start=1)
    ]
    means = {m: {k: float(np.mean([figures[m][k][cut].mean() for cut in cuts])) for k in metrics} for m in models}
    tests = [
        _test(k, a, b, figures[a][k] - figures[b][k], p=float(rng.random() ** 4))
        for k in metrics
        for a, b in itertools.combinations(models, 2)
    ]
    return {
        "dataset": dataset_info(),
        "protocol": "letor",
        "folds": "letor5",
        "seed": 0,
        "models": models,
        "metrics": metrics,
        "means": means,
        "results": results,
        "tests": tests,
        "per_query": {m: {k: values.tolist() for k, values in row.items()} for m, row in figures.items()},
        "seconds": {m: float(rng.random() * 10) for m in models},
        "command": "distagg compare made-up --folds letor5",
    }


def dataset_info() -> dict[str, Any]:
    return {
        "name": "made-up",
        "kind": "lists",
        "partition": "query",
        "queries": 784,
        "items": 15211,
        "experts": 3,
        "entries": 133048,
        "lists": 2352,
        "missing": 0.65,
        "labels": {"10": 5, "0": 12279, "2": 931},
        "ties": 0,
        "list_lengths": {"min": 1, "median": 7, "max": 98},
        "query_sizes": {"min": 6, "median": 15, "max": 121},
        "parts": ["A1.txt", "A2.txt"],
        "histograms": {
            "list_length": {"edges": [0, 10, 20, 100], "counts": [5, 9, 1]},
            "query_size": {"edges": [6, 60, 121], "counts": [700, 84]},
        },
        "coverage": {"engine-a": 0.25, "engine-b": 0.5, "engine-c": 0.75},
    }


def _test(metric: str, a: str, b: str, differences: np.ndarray, p: float) -> dict[str, Any]:
    mean, half = float(differences.mean()), 1.96 * float(differences.std()) / len(differences) ** 0.5
    return {
        "metric": metric,
        "a": a,
        "b": b,
        "difference": mean,
        "low": mean - half,
        "high": mean + half,
        "p_t": p / 2,
        "p_randomisation": p / 2,
        "p_t_holm": p,
        "p_randomisation_holm": p,
        "queries": len(differences),
    }
