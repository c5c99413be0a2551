"""Table 1 of paper 000 (and its row for theta_sup_mpm from table 5) beside what distagg gives.

    distagg import letor MQ2008-agg/A?.txt -o mq2008 && distagg import letor MQ2007-agg/A?.txt -o mq2007
    python jobs/reproduce/table1.py --mq2008 mq2008 --mq2007 mq2007 [--models svp,cps] [-p cps.theta=learn]

The papers' protocol: LETOR 4.0 evaluation, five folds, in percent. A row falls short when any of its figures is more
than half a point below the paper's; such rows stand first.

Ours are distagg's defaults, not the authors' settings, which the paper does not give in full. What decides most is what
an unlisted item means: condorcet, svp and cps put it last by default, and are far above the paper for it; with
``-p svp.unlisted=ignore`` only pairs of listed items count, as in the paper. The paper's cps learned its weights from
training queries (``-p cps.theta=learn``); our default learns nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distagg.dataset import Dataset
from distagg.engine.compare import compare
from distagg.errors import DistaggError, UsageError
from distagg.models import MODELS
from distagg.reports.terminal import render_table

METRICS = [f"ndcg@{k}" for k in range(1, 6)] + [f"p@{k}" for k in range(1, 6)] + ["map"]
SLACK = 0.5

# NDCG@1-5, precision@1-5, MAP. CPS-best is the best of the three distances, its weights learned from training queries.
PAPER = {
    "mq2008": {
        "condorcet": (35.67, 37.39, 39.11, 40.50, 41.59, 40.94, 37.43, 34.73, 32.08, 29.59, 42.63),
        "svp": (32.49, 36.20, 38.62, 40.17, 41.85, 38.52, 36.42, 34.65, 32.01, 30.23, 43.61),
        "bradley_terry": (38.05, 39.24, 40.77, 41.79, 42.62, 44.77, 39.73, 36.26, 33.19, 30.28, 44.35),
        "plackett_luce": (35.20, 38.49, 39.70, 40.49, 41.55, 41.32, 38.96, 35.33, 32.02, 29.62, 42.20),
        "cps": (26.52, 31.38, 34.59, 37.63, 40.04, 31.63, 32.27, 32.27, 31.66, 30.64, 41.02),
        "theta_mpm": (37.07, 40.29, 41.78, 42.76, 43.69, 43.62, 40.94, 37.24, 33.64, 30.81, 44.32),
        "theta_sup_mpm": (38.17, 40.57, 42.19, 43.07, 43.99, 44.89, 41.13, 37.67, 33.80, 31.17, 44.71),
    },
    "mq2007": {
        "condorcet": (37.31, 37.63, 38.03, 38.37, 38.66, 43.26, 42.14, 40.94, 39.85, 38.75, 42.56),
        "svp": (35.82, 35.91, 36.53, 37.16, 37.50, 41.61, 40.28, 39.50, 38.88, 38.10, 42.73),
        "bradley_terry": (39.88, 39.86, 40.40, 40.60, 40.91, 46.34, 44.65, 43.48, 41.98, 40.95, 43.98),
        "plackett_luce": (40.63, 40.39, 40.26, 40.71, 40.96, 46.93, 45.10, 43.09, 42.32, 41.09, 43.64),
        "cps": (31.96, 33.18, 33.86, 34.09, 34.76, 38.65, 38.65, 38.14, 37.19, 37.02, 40.69),
        "theta_mpm": (41.13, 41.21, 41.09, 41.41, 41.53, 47.35, 45.78, 44.17, 43.01, 41.97, 44.35),
        "theta_sup_mpm": (41.77, 41.91, 41.92, 42.34, 42.79, 48.35, 46.64, 44.53, 43.52, 42.72, 45.71),
    },
}


@dataclass(frozen=True)
class Row:
    """One model on one dataset, in percent; ``ours`` is empty when the model is not there."""

    data: str
    model: str
    paper: tuple[float, ...]
    ours: tuple[float, ...]

    @property
    def difference(self) -> tuple[float, ...]:
        # What is compared are figures of two decimals.
        return tuple(round(b - a, 2) for a, b in zip(self.paper, self.ours, strict=False))

    @property
    def verdict(self) -> str:
        if not self.ours:
            return "MISSING"
        return "SHORT" if min(self.difference) < -SLACK else "met"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"metrics": METRICS, "difference": self.difference, "verdict": self.verdict}


def measured(data: str, dataset: Dataset, models: Sequence[str], settings: dict[str, dict[str, str]]) -> list[Row]:
    """Rows of those models, on the same folds."""
    present = [model for model in models if model in MODELS]
    means: dict[str, dict[str, float]] = {}
    if present:
        means = compare(
            dataset, present, settings=settings, folds="letor5", metrics=METRICS, protocol="letor"
        )["means"]  # fmt: skip
    return [
        Row(
            data,
            model,
            PAPER[data][model],
            tuple(round(100 * means[model][metric], 2) for metric in METRICS) if model in means else (),
        )
        for model in models
    ]


def table(rows: Sequence[Row]) -> str:
    """Three lines for each row, those that fall short first, then those that are missing."""
    order = {"SHORT": 0, "MISSING": 1, "met": 2}
    lines: list[list[object]] = []
    for row in sorted(rows, key=lambda row: order[row.verdict]):
        lines.append([row.verdict, row.data, row.model, "paper", *(f"{v:.2f}" for v in row.paper)])
        if row.ours:
            lines.append(["", "", "", "ours", *(f"{v:.2f}" for v in row.ours)])
            lines.append(["", "", "", "difference", *(f"{v:+.2f}" for v in row.difference)])
    return render_table(["", "data", "model", "", *METRICS], lines, align="llll" + "r" * len(METRICS))


def chosen_settings(given: Sequence[str]) -> dict[str, dict[str, str]]:
    settings: dict[str, dict[str, str]] = {}
    for text in given:
        name, equals, value = text.partition("=")
        model, dot, key = name.partition(".")
        if not equals or not dot:
            raise UsageError(f"-p: found '{text}', expected MODEL.key=value")
        settings.setdefault(model, {})[key] = value
    return settings


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for data in PAPER:
        parser.add_argument(f"--{data}", metavar="DATASET", help=f"the imported {data.upper()}-agg")
    known = list(PAPER["mq2008"])
    parser.add_argument("--models", default=",".join(known), help="which rows, by commas (default: %(default)s)")
    parser.add_argument("-p", dest="settings", action="append", default=[], metavar="MODEL.key=value")
    parser.add_argument("--json", metavar="FILE", help="write the rows there as well")
    given = parser.parse_args(arguments)
    models = given.models.split(",")
    if set(models) - set(known):
        parser.error(f"--models: the paper has no row for {', '.join(sorted(set(models) - set(known)))}")
    datasets = {data: getattr(given, data) for data in PAPER if getattr(given, data)}
    if not datasets:
        parser.error("give --mq2008, --mq2007 or both")
    try:
        settings = chosen_settings(given.settings)
        rows = [row for d, path in datasets.items() for row in measured(d, Dataset.open(path), models, settings)]
    except DistaggError as error:
        print(f"table1: {error}", file=sys.stderr)
        return error.exit_code
    print(table(rows))
    missing = [model for model in models if model not in MODELS]
    short = [f"{row.model} on {row.data}" for row in rows if row.verdict == "SHORT"]
    print(f"\nbelow the paper by more than {SLACK} somewhere: {', '.join(short) or 'none'}")
    if missing:
        print(f"not registered: {', '.join(missing)}")
    if given.json:
        Path(given.json).write_text(json.dumps([row.as_dict() for row in rows], indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
