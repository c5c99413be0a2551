"""Learned parameters as text: scalars in a line, per-expert parameters in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from distagg.reports.terminal import render_table

SHOWN, WIDE, BAR = 50, 12, 20  # experts, weights of each, letters of a bar


def learned_text(model: str, params: Mapping[str, np.ndarray], experts: Sequence[str], columns: Sequence[str]) -> str:
    """Params named expert_* (a row for each expert) as tables, the heaviest expert first; ``columns`` name weights.

    >>> print(learned_text("theta_mpm", {"expert_theta": np.array([0.5, 1.0])}, ["bing", "duck"], ()))
    theta_mpm: learned
    expert  theta
    ------  -----  --------------------
    duck    1.000  ####################
    bing    0.500  ##########
    """
    by_expert = {n: v for n, v in params.items() if n.startswith("expert_") and len(v) == len(experts)}
    others = [
        f"{name} = {value.item():.6g}" if value.size == 1 else f"{name}: {' x '.join(map(str, value.shape))} numbers"
        for name, value in params.items()
        if name not in by_expert
    ]
    said = ", ".join(others) or ("learned" if params else "nothing to learn")
    tables = [_table(name, values.reshape(len(experts), -1), experts, columns) for name, values in by_expert.items()]
    return "\n".join([f"{model}: {said}", *tables])


def _table(name: str, values: np.ndarray, experts: Sequence[str], columns: Sequence[str]) -> str:
    width = min(values.shape[1], WIDE)
    plain = values.shape[1] == 1
    order = np.argsort(-(values[:, 0] if plain else np.abs(values).sum(axis=1)), kind="stable")
    top = float(np.abs(values).max(initial=0.0)) or 1.0
    rows = [
        [experts[at], f"{values[at, 0]:.3f}", "#" * round(BAR * max(float(values[at, 0]), 0.0) / top)]
        if plain
        else [experts[at], *(f"{value:.2f}" for value in values[at, :width])]
        for at in order[:SHOWN]
    ]
    names = [name.removeprefix("expert_"), ""] if plain else list(columns[:width]) or [str(n) for n in range(width)]
    left = [f"{len(order) - SHOWN:,} experts"] if len(order) > SHOWN else []
    left += [f"{values.shape[1] - width:,} weights of each"] if values.shape[1] > width else []
    more = [f"... and {' and '.join(left)} more; --json prints all"] if left else []
    return "\n".join([render_table(["expert", *names], rows, "lrl" if plain else "l" + "r" * width), *more])
