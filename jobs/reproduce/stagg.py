"""Paper 004 beside what distagg gives: Table 1 (without labels) and section 5.2 (with labels).

    distagg import letor MQ2008-agg/A?.txt -o mq2008 && distagg import letor MQ2007-agg/A?.txt -o mq2007
    python jobs/reproduce/stagg.py --mq2008 mq2008 --mq2007 mq2007 [--part lists] [--models stagg_bc,rrf]

Five folds, in percent. N@k are the LETOR script's; the columns in brackets take the paper's discount,
1 / log(1 + rank), with the script's rule that a query of fewer than k items has 0 (the paper's N@10 on MQ2008 shows
that it was used). ERR is the same in both. RBP is the paper's: persistence 0.95, the label itself as the gain.

Part ``lists``: every row of Table 1, and stochastic aggregation by the paper's own rules (contest=paper,
unlisted=average, c on validation queries). Part ``trained``: stagg against rankagg with the same features and
objective, each measured by its objective (NDCG@10, ERR or RBP), with the p-value of a paired randomisation test; and
against theta_sup_mpm. The figures of section 5.2 are pictures; what its text says of them is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distagg.dataset import Dataset
from distagg.dataset.chunk import Chunk
from distagg.engine.fit import fit
from distagg.engine.folds import make_folds
from distagg.errors import DistaggError
from distagg.kernels.ordering import order_items
from distagg.metrics import highest_label, parse_metrics, score_chunk
from distagg.metrics.significance import paired_tests
from distagg.models import model_named
from distagg.reports.terminal import render_table
from distagg.types import Floats

METRICS = ("N@5", "N@10", "ERR", "RBP", "(N@5)", "(N@10)")
PERSISTENCE, SLACK = 0.95, 0.5
PAPER_RULES = {"contest": "paper", "unlisted": "average"}

# Table 1 of the paper: N@5, N@10, ERR, RBP.
PAPER = {
    "mq2008": {
        "bestinput": (38.13, 17.56, 23.91, 15.74),
        "mclk": (34.02, 14.31, 20.55, 14.49),
        "svp": (40.04, 18.90, 25.23, 16.06),
        "plackett_luce": (37.37, 15.86, 26.96, 14.85),
        "mpm": (42.83, 20.50, 30.23, 16.28),
        "borda": (40.52, 18.95, 25.47, 16.07),
        "rrf": (42.39, 19.31, 27.56, 16.15),
        "stagg_bc": (45.15, 21.51, 30.21, 16.71),
        "stagg_rrf": (45.12, 21.57, 30.28, 16.73),
    },
    "mq2007": {
        "bestinput": (31.58, 34.74, 24.76, 31.17),
        "mclk": (20.98, 24.50, 19.05, 27.98),
        "svp": (25.82, 28.59, 21.69, 29.41),
        "plackett_luce": (34.62, 35.74, 29.57, 29.99),
        "mpm": (39.86, 42.10, 30.78, 32.29),
        "borda": (23.25, 26.37, 20.00, 28.68),
        "rrf": (31.72, 34.74, 25.63, 31.08),
        "stagg_bc": (41.79, 43.84, 31.97, 33.47),
        "stagg_rrf": (41.95, 44.04, 31.99, 33.46),
    },
}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {  # rows that are not a model's defaults
    "mclk": ("mc4", {"local_kemeny": True}),
    "stagg_bc, paper's rules": ("stagg_bc", PAPER_RULES),
    "stagg_rrf, paper's rules": ("stagg_rrf", PAPER_RULES | {"c": "auto"}),
}
OBJECTIVES = {"ndcg": 1, "err": 2, "rbp": 3}  # and the column that measures it
FEATURES: dict[str, dict[str, Any]] = {"borda": {}, "svd": {}, "cp": {"rank": 2}}
SAID = (  # section 5.2.1, of MQ2007 with svd features
    "the paper on mq2007, svd: stagg over rankagg +4.6% (N@10), +7.5% (ERR), +7.2% (RBP); over theta_sup_mpm +6.73%, "
    "+24.3%, +15.5%"
)


def paper_metrics(chunk: Chunk, scores: Floats, highest: int) -> Floats:
    """METRICS of every query, shape (Q, 6)."""
    values = np.zeros((chunk.n_queries, len(METRICS)))
    values[:, :3] = score_chunk(chunk, scores, parse_metrics(["ndcg@5", "ndcg@10", "err"]), max_grade=highest)
    order = order_items(chunk.item_offsets, scores)
    for q in range(chunk.n_queries):
        span = slice(chunk.item_offsets[q], chunk.item_offsets[q + 1])
        label = np.maximum(chunk.labels[span], 0)
        ranked, place = label[order[span]], np.arange(len(label))
        values[q, 3] = (1.0 - PERSISTENCE) * (ranked * PERSISTENCE**place).sum()
        for column, depth in ((4, 5), (5, 10)):
            discount = 1.0 / np.log2(place[:depth] + 2.0)
            best = ((2.0 ** np.sort(label)[::-1][:depth] - 1.0) * discount).sum()
            if len(label) >= depth and best > 0.0:
                values[q, column] = ((2.0 ** ranked[:depth] - 1.0) * discount).sum() / best
    return values


@dataclass(frozen=True)
class Measured:
    """A row's figures: means over folds in percent, and what every query had."""

    means: Floats  # (6,)
    queries: Floats  # (Q, 6)


def measure(dataset: Dataset, name: str, settings: dict[str, Any]) -> Measured:
    """One model on the five folds; what it chooses, it chooses by MAP on validation queries."""
    model, highest = model_named(name, settings), highest_label(dataset.manifest)
    by_fold = []
    for fold in make_folds(dataset, "letor5"):
        params = fit(model, fold.train, valid=fold.valid) if model.learns else {}
        by_fold.append(
            np.concatenate([paper_metrics(c, model.score(c, params), highest) for c in fold.test.chunks(ids=False)])
        )
    return Measured(100.0 * np.mean([values.mean(axis=0) for values in by_fold], axis=0), np.concatenate(by_fold))


def lists(data: str, dataset: Dataset, wanted: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of Table 1; those that are below the paper by more than SLACK stand first."""
    rows = []
    for row in (*PAPER[data], *(name for name in SETTINGS if name not in PAPER[data])):
        if wanted and row not in wanted:
            continue
        found = measure(dataset, *SETTINGS.get(row, (row, {}))).means
        paper = PAPER[data].get(row.partition(",")[0], ())
        short = bool((found[:4] - paper < -SLACK).any())
        rows.append({"data": data, "row": row, "paper": paper, "ours": found.tolist(), "short": short})
    return sorted(rows, key=lambda row: not row["short"])


def lists_table(rows: Sequence[dict[str, Any]]) -> str:
    lines: list[list[object]] = []
    for row in rows:
        shown = [f"{value:.2f}" for value in row["paper"]]
        lines.append(["SHORT" if row["short"] else "met", row["data"], row["row"], "paper", *shown, "", ""])
        lines.append(["", "", "", "ours", *(f"{value:.2f}" for value in row["ours"])])
    return render_table(["", "data", "model", "", *METRICS], lines, "llll" + "r" * len(METRICS))


def trained(data: str, dataset: Dataset, features: Sequence[str], objectives: Sequence[str]) -> list[dict[str, Any]]:
    """stagg beside rankagg, by features and objective; rows in which stagg is behind stand first."""
    rules = {"unlisted": "ignore", "pairs": "difference"}  # the papers' theta_sup_mpm
    other, papers = (measure(dataset, "theta_sup_mpm", s).means for s in ({}, rules))
    rows = []
    for kind in features:
        for objective in objectives:
            column = OBJECTIVES[objective]
            settings = {"features": kind, "objective": objective, "mode": "average", **FEATURES[kind]}
            ours, plain = (measure(dataset, name, settings) for name in ("stagg", "rankagg"))
            test = paired_tests(ours.queries[:, column], plain.queries[:, column])
            rows.append(
                {
                    "data": data, "features": kind, "objective": objective, "metric": METRICS[column],
                    "stagg": float(ours.means[column]), "rankagg": float(plain.means[column]),
                    "p": test.randomisation, "theta_sup_mpm": float(other[column]),
                    "theta_sup_mpm, the papers'": float(papers[column]),
                }
            )  # fmt: skip
            print(f"{data} {kind} {objective} done", file=sys.stderr, flush=True)
    return sorted(rows, key=lambda row: row["stagg"] / row["rankagg"])


def trained_table(rows: Sequence[dict[str, Any]]) -> str:
    def beside(row: dict[str, Any], name: str) -> str:
        return f"{row[name]:.2f} ({100.0 * (row['stagg'] / row[name] - 1.0):+.1f}%)"

    others = ("rankagg", "theta_sup_mpm", "theta_sup_mpm, the papers'")
    lines = [
        [
            row["data"], row["features"], row["metric"], f"{row['stagg']:.2f}", beside(row, others[0]),
            f"{row['p']:.4f}", *(beside(row, name) for name in others[1:]),
        ]
        for row in rows
    ]  # fmt: skip
    return render_table(["data", "features", "metric", "stagg", others[0], "p", *others[1:]], lines, "lllrrrrr")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for data in PAPER:
        parser.add_argument(f"--{data}", metavar="DATASET", help=f"the imported {data.upper()}-agg")
    parser.add_argument("--part", choices=("lists", "trained"), help="only this part (default: both)")
    parser.add_argument("--models", default="", help="of part lists only these rows, by commas")
    parser.add_argument("--features", default=",".join(FEATURES), help="of part trained only these, by commas")
    parser.add_argument("--objectives", default=",".join(OBJECTIVES), help="and only these")
    parser.add_argument("--json", metavar="FILE", help="write the rows there as well")
    given = parser.parse_args(arguments)
    datasets = {data: getattr(given, data) for data in PAPER if getattr(given, data)}
    if not datasets:
        parser.error("give --mq2008, --mq2007 or both")
    rows: dict[str, list[dict[str, Any]]] = {}
    wanted = [name for name in given.models.split(",") if name]
    try:
        if given.part != "trained":
            made = [row for d, path in datasets.items() for row in lists(d, Dataset.open(path), wanted)]
            rows["lists"] = sorted(made, key=lambda row: not row["short"])
            print(lists_table(rows["lists"]) + "\n")
        if given.part != "lists":
            what = given.features.split(","), given.objectives.split(",")
            made = [row for d, path in datasets.items() for row in trained(d, Dataset.open(path), *what)]
            rows["trained"] = sorted(made, key=lambda row: row["stagg"] / row["rankagg"])
            print(trained_table(rows["trained"]))
            print(SAID)
    except DistaggError as error:
        print(f"stagg: {error}", file=sys.stderr)
        return error.exit_code
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
