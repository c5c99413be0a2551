"""Metrics of labels in ranking order, from their definitions."""

from __future__ import annotations

import math

HIGHEST = 2  # label


def naive_metric(name: str, depth: int, grades: list[int]) -> float:
    """A metric of labels in ranking order, from its definition, over the first ``depth`` positions.

    For likelihood: whether the ranking agrees with the labels.
    """
    if name == "likelihood":
        return float(grades == sorted(grades, reverse=True))
    relevant = [grade > 0 for grade in grades]
    if name == "ndcg":
        discount = [1.0 / math.log2(p + 2) if p < depth else 0.0 for p in range(len(grades))]
        dcg = sum((2**g - 1) * d for g, d in zip(grades, discount, strict=True))
        ideal = sum((2**g - 1) * d for g, d in zip(sorted(grades, reverse=True), discount, strict=True))
        return dcg / ideal if ideal else 0.0
    if name == "p":
        return sum(relevant[:depth]) / min(depth, len(grades))
    if name == "map":
        hits = [sum(relevant[: p + 1]) / (p + 1) for p in range(min(depth, len(grades))) if relevant[p]]
        return sum(hits) / max(sum(relevant), 1)
    if name == "err":
        value, reached = 0.0, 1.0
        for p, grade in enumerate(grades[:depth]):
            satisfied = (2**grade - 1) / 2**HIGHEST
            value, reached = value + reached * satisfied / (p + 1), reached * (1 - satisfied)
        return value
    return sum(0.2 * 0.8**p * hit for p, hit in enumerate(relevant[:depth]))
