"""Battles needed to reach a given Kendall's tau: suggested pairs against random ones, on planted strengths.

Every item starts with one battle against a random other. Then batches are asked by turns: the pairs of ``suggest``, or
as many random pairs. Outcomes are drawn from Bradley and Terry's model, with ties if asked for. ``python
jobs/bench/suggest.py`` prints the mean tau after each batch, and the battles after which it first reaches each goal.
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow as pa
import scipy.stats

import distagg

GOALS = (0.7, 0.75, 0.8, 0.85)


def battle(draw: np.random.Generator, strength: np.ndarray, i: int, j: int, ties: float) -> tuple[str, str, bool]:
    """One battle: winner, loser, and whether it was a tie."""
    if draw.random() < ties:
        return str(i), str(j), True
    ahead = draw.random() < 1.0 / (1.0 + np.exp(strength[j] - strength[i]))
    return (str(i), str(j), False) if ahead else (str(j), str(i), False)


def table_of(rows: list[tuple[str, str, bool]]) -> pa.Table:
    return pa.table(dict(zip(("winner", "loser", "tie"), map(list, zip(*rows, strict=True)), strict=True)))


def taus(seed: int, items: int, batch: int, batches: int, *, suggested: bool, ties: float = 0.0) -> list[float]:
    """Kendall's tau of bradley_terry's scores with the planted strengths, after each batch."""
    draw = np.random.default_rng(seed)
    strength = draw.normal(0.0, 1.5, items)
    rows = [battle(draw, strength, i, int((i + draw.integers(1, items)) % items), ties) for i in range(items)]
    found = []
    for _ in range(batches):
        if suggested:
            asked = distagg.suggest(table_of(rows), batch)
            pairs = list(zip(*(map(int, asked[name].to_pylist()) for name in ("item_a", "item_b")), strict=True))
        else:
            pairs = [tuple(map(int, draw.choice(items, 2, replace=False))) for _ in range(batch)]
        rows += [battle(draw, strength, i, j, ties) for i, j in pairs]
        ranking = distagg.rank("bradley_terry", table_of(rows))
        order = [int(item) for item in ranking["item"].to_pylist()]
        found.append(float(scipy.stats.kendalltau(-np.arange(len(order)), strength[order]).statistic))
    return found


def reached(mean: np.ndarray, goal: float, items: int, batch: int) -> str:
    """The number of battles after which a mean first reaches a goal."""
    there = np.flatnonzero(mean >= goal)
    return str(items + batch * (int(there[0]) + 1)) if len(there) else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=30)
    parser.add_argument("--batch", type=int, default=15)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--ties", type=float, default=0.0, help="share of battles that are ties")
    given = parser.parse_args()
    means = {}
    for name, suggested in (("suggested", True), ("random", False)):
        sizes = (given.items, given.batch, given.batches)
        runs = [taus(seed, *sizes, suggested=suggested, ties=given.ties) for seed in range(given.seeds)]
        means[name] = np.mean(runs, axis=0)
    print(f"{given.items} items, batches of {given.batch}, mean of {given.seeds} seeds, {given.ties:.0%} ties")
    print("battles", *means, sep="\t")
    for n in range(given.batches):
        print(given.items + given.batch * (n + 1), *(f"{mean[n]:.3f}" for mean in means.values()), sep="\t")
    for goal in GOALS:
        print(f"tau {goal}", *(reached(mean, goal, given.items, given.batch) for mean in means.values()), sep="\t")


if __name__ == "__main__":
    main()
