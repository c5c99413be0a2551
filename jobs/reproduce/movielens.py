"""Tables 2 and 3 and figures 3 and 4 of paper 000 (section 2.7), on MovieLens 100K, beside what distagg gives.

    distagg import ratings ml-100k/u.data --users ml-100k/u.user --items ml-100k/u.item -o ml
    python jobs/reproduce/movielens.py ml [--json FILE] [--report FILE.html]

Table 2 needs settings that the paper does not give. ``bradley_terry`` and ``plackett_luce`` stand there with the priors
that put the paper's movies on top (its 100 steps of gradient descent, stopped early, are a prior too), and with our
defaults. ``pmf`` is given one prior for offsets and factors, as the paper's has no offsets; ``neighbours`` are drawn to
the baseline. Beyond the first position the paper's figures are those of equation 2 with every later position at half
its weight, in the numerator alone (row ``halved``): inferred from the figures, not said in the paper. Significance:
two-sided paired t-tests over the users, against ``mpm``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import spearmanr

from distagg import Dataset, Shown, evaluate_users, fit_completion, rank, solve
from distagg.errors import DistaggError
from distagg.metrics import paired_tests
from distagg.reports.terminal import render_table

METRICS = [f"ndcg@{k}" for k in range(1, 11)]
CONSTANTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
COMPLETIONS: dict[str, dict[str, float]] = {"pmf": {"offset": 12.0}, "neighbours": {"offset": 25.0, "damp": 0.5}}
OTHER = {"pmf": "neighbours", "neighbours": "pmf"}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bradley_terry": ("bradley_terry", {"weight": 30.0}),
    "bradley_terry, default": ("bradley_terry", {}),
    "plackett_luce": ("plackett_luce", {"shape": 3.0}),
    "plackett_luce, default": ("plackett_luce", {}),
    "mpm": ("mpm", {}),
    "mpm, variance": ("mpm", {"variance": True, "tolerance": 1e-5}),
}
PAPER = {
    "pmf": {
        "bradley_terry": (40.09, 36.00, 35.20, 34.96, 34.49, 34.40, 31.63, 32.08, 32.46, 32.35),
        "plackett_luce": (69.56, 54.17, 48.97, 46.58, 44.89, 43.44, 42.50, 41.25, 40.64, 40.03),
        "neighbours, borda": (61.48, 49.96, 44.66, 42.87, 40.98, 39.74, 39.01, 37.94, 37.94, 37.73),
        "mpm": (69.15, 54.29, 49.72, 46.98, 45.52, 44.13, 43.25, 42.62, 42.04, 41.57),
    },
    "neighbours": {
        "bradley_terry": (34.66, 34.07, 34.09, 34.11, 34.02, 34.22, 32.73, 33.14, 33.47, 33.48),
        "plackett_luce": (70.81, 56.33, 50.97, 48.27, 46.64, 45.17, 44.17, 43.01, 42.23, 41.74),
        "pmf, borda": (69.17, 55.93, 50.90, 48.22, 46.65, 45.42, 44.58, 43.88, 43.22, 42.72),
        "mpm": (71.90, 56.34, 51.21, 48.55, 46.73, 45.41, 44.34, 43.58, 42.94, 42.43),
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("dataset", help="MovieLens 100K, imported with --users and --items")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write tables and pictures as a page")
    chosen = parser.parse_args(arguments)
    try:
        found = reproduce(Dataset.open(chosen.dataset))
        if chosen.report:
            from distagg.reports import consensus_report, write_report

            write_report(consensus_report(found), chosen.report, overwrite=True)
    except DistaggError as error:
        print(f"movielens: {error}", file=sys.stderr)
        return error.exit_code
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print_all(found)
    return 0


def reproduce(dataset: Dataset) -> dict[str, Any]:
    """All figures."""
    shown = Shown(support=True, titles=True)
    rankings = {name: rank(model, dataset, shown=shown, **given) for name, (model, given) in MODELS.items()}
    fitted = {name: fit_completion(name, dataset, **given) for name, given in COMPLETIONS.items()}
    for name, through in fitted.items():
        rankings[f"{name}, borda"] = solve("borda", dataset, through=through, shown=shown).ranking
    return {
        "title": "MovieLens 100K",
        "table2": [row for name in fitted for row in table2(name, rankings, dataset, fitted[name])],
        "ends": {name: ends(rankings[name]) for name in rankings},
        "constants": figure3({name: rankings[name] for name in MODELS}, dataset),
        "variance": figure4(rankings["mpm, variance"]),
    }


def table2(completion: str, rankings: dict[str, pa.Table], dataset: Dataset, through: Any) -> list[dict[str, Any]]:
    """A row for each ranking that is not the completion's own."""
    tried = {name: table for name, table in rankings.items() if name != f"{completion}, borda"}
    values = evaluate_users(tried, dataset, through, METRICS).values
    half = halved(tried, dataset, through)
    rows = []
    for name, value in values.items():
        tests = [paired_tests(values["mpm"][:, at], value[:, at]).t_test for at in range(len(METRICS))]
        rows.append(
            {
                "completion": completion, "model": name, "ours": (100 * value.mean(axis=0)).tolist(),
                "halved": (100 * half[name]).tolist(),
                "paper": PAPER[completion].get(name), "p against mpm": tests,
            }
        )  # fmt: skip
    return rows


def halved(rankings: dict[str, pa.Table], dataset: Dataset, through: Any) -> dict[str, np.ndarray]:
    """Mean NDCG by depth with positions from the second on at half their weight, in what is reached only."""
    depth = len(METRICS)
    discount = 1.0 / np.log2(np.arange(2, depth + 2))
    weight = discount * np.where(np.arange(depth) == 0, 1.0, 0.5)
    total = {name: np.zeros(depth) for name in rankings}
    for chunk in dataset.chunks():
        place = {item: at for at, item in enumerate(chunk.item_ids.to_pylist())}
        tops = {name: [place[item] for item in table["item"].to_pylist()[:depth]] for name, table in rankings.items()}
        for _, ratings in through[0].rows(chunk, through[1]):
            gain = np.exp2(ratings) - 1.0
            most = np.cumsum(-np.sort(-gain, axis=1)[:, :depth] * discount, axis=1)
            for name, top in tops.items():
                total[name] += (np.cumsum(gain[:, top] * weight, axis=1) / most).sum(axis=0)
    return {name: value / dataset.manifest.lists for name, value in total.items()}


def ends(ranking: pa.Table, count: int = 5) -> dict[str, list[dict[str, Any]]]:
    """The first and last items with their support."""
    rows = ranking.select(["rank", "title", "experts", "won", "lost"]).to_pylist()
    return {"top": rows[:count], "bottom": rows[-count:]}


def figure3(rankings: dict[str, pa.Table], dataset: Dataset) -> dict[str, Any]:
    """NDCG against the constant that fills what is missing."""
    metrics = ["ndcg@1", "ndcg@5", "ndcg@10"]
    found = [evaluate_users(rankings, dataset, fit_completion(value, dataset), metrics).values for value in CONSTANTS]
    means = {name: [value[name].mean(axis=0).tolist() for value in found] for name in rankings}
    worst = max(
        paired_tests(value["mpm"][:, at], value[name][:, at]).t_test
        for value in found for name in ("bradley_terry", "plackett_luce") for at in range(3)
    )  # fmt: skip
    return {"values": list(CONSTANTS), "metrics": metrics, "means": means, "largest p of mpm against them": worst}


def figure4(ranking: pa.Table) -> dict[str, Any]:
    """Every movie's variance, support and rank, and what the paper says of them."""
    gamma, support = ranking["uncertainty"].to_numpy(), ranking["experts"].to_numpy()
    tenth = len(gamma) // 10
    named = {row["title"]: row for row in ranking.to_pylist()}
    movies = [named[title] for title in ("Sabrina (1995)", "Mrs. Doubtfire (1993)", "Ghost (1990)") if title in named]
    return {
        "support": support.tolist(), "rank": ranking["rank"].to_pylist(), "uncertainty": gamma.tolist(),
        "correlation of variance and support": float(spearmanr(gamma, support).statistic),
        "median variance, first tenth": float(np.median(gamma[:tenth])),
        "median variance, middle": float(np.median(gamma[4 * tenth : 6 * tenth])),
        "median variance, last tenth": float(np.median(gamma[-tenth:])),
        "in the middle": [
            {"title": m["title"], "rank": m["rank"], "variance": m["uncertainty"],
             "share of movies with less": float((gamma < m["uncertainty"]).mean())}
            for m in movies
        ],
    }  # fmt: skip


def print_all(found: dict[str, Any]) -> None:
    for completion in COMPLETIONS:
        print(f"\nTable 2, ratings completed by {completion}, percent; * differs from mpm (p < 0.05)")
        cells = []
        for row in found["table2"]:
            if row["completion"] != completion:
                continue
            marks = ["*" if p < 0.05 else " " for p in row["p against mpm"]]
            ours = [f"{value:.2f}{mark}" for value, mark in zip(row["ours"], marks, strict=True)]
            cells.append([row["model"], "ours", *ours])
            if row["paper"]:
                cells.append(["", "halved", *(f"{value:.2f} " for value in row["halved"])])
                cells.append(["", "paper", *(f"{value:.2f} " for value in row["paper"])])
        print(render_table(["model", "", *METRICS], cells, "ll" + "r" * len(METRICS)))
    print("\nTable 3: first and last movies (users, won, lost)")
    for name, both in found["ends"].items():
        said = [f"{m['title']} ({m['experts']}, {m['won']:,}, {m['lost']:,})" for m in both["top"] + both["bottom"]]
        print(f"{name}\n  " + "\n  ".join([*said[:5], "...", *said[5:]]))
    print("\nFigure 3: mean NDCG@1, 5, 10 by the constant imputed, percent")
    constants = found["constants"]
    for name, rows in constants["means"].items():
        print(f"  {name}: " + "  ".join("/".join(f"{100 * v:.1f}" for v in row) for row in rows))
    print(f"  mpm against bradley_terry and plackett_luce, largest p: {constants['largest p of mpm against them']:.1e}")
    print("\nFigure 4")
    for key, value in found["variance"].items():
        if key not in ("support", "rank", "uncertainty"):
            print(f"  {key}: {value}")


if __name__ == "__main__":
    sys.exit(main())
