"""Table 6 of paper 000: a CRF of all experts, and one trained again without those that it does not use.

    distagg import letor MQ2008-agg/A?.txt -o mq2008
    python jobs/reproduce/table6.py --mq2008 mq2008 [--seeds 3] [-p reciprocal=0 -p rate=1]

The paper's protocol: five folds, LETOR evaluation, in percent. The paper looked at the weights of fold 1 and left out
experts 13, 20, 24 and 25 everywhere. Here every fold leaves out those that its own model does not use on its training
queries (``distagg experts``), so that no test query has a say; the paper's four are tried as well. The deviation over
seeds stands in brackets.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distagg.dataset import Dataset
from distagg.engine.compare import evaluate_model
from distagg.engine.fit import fit
from distagg.engine.folds import Fold, make_folds
from distagg.engine.quality import judge_experts, retrain, unheard
from distagg.engine.saved import Fitted
from distagg.errors import DistaggError, UsageError
from distagg.metrics import paired_tests
from distagg.models import model_named
from distagg.reports.terminal import render_table

METRICS = [*(f"ndcg@{k}" for k in range(1, 6)), "map"]
PAPER = {
    "all experts": (42.29, 44.99, 47.54, 49.05, 51.03),
    "without 13, 20, 24, 25": (42.64, 45.07, 47.63, 49.00, 50.90),
}
PAPERS_FOUR = ["13", "20", "24", "25"]
VARIANTS = ("all experts", "without the unused", "without 13, 20, 24, 25")


def run_fold(model: str, settings: dict[str, Any], fold: Fold) -> tuple[dict[str, np.ndarray], list[str]]:
    """Values of the test queries (Q, metrics) for each variant, and the experts that were not used."""
    made = model_named(model, settings)
    whole = Fitted(made, fit(made, fold.train, valid=fold.valid), fold.train.experts)
    unused = [one.expert for one in judge_experts(whole, fold.train) if one.verdict == "unused"]
    values = {}
    for name, without in zip(VARIANTS, ([], unused, PAPERS_FOUR), strict=True):
        fitted = retrain(whole, without, fold.train, valid=fold.valid) if without else whole
        values[name] = evaluate_model(made, fitted.params, unheard(fold.test, without), METRICS)[1]
    return values, unused


def run(dataset: Dataset, model: str, settings: dict[str, Any], seeds: int) -> dict[str, Any]:
    """Means by variant and seed, the tests of NDCG@5 against all experts, and how often who was unused."""
    means: dict[str, list[list[float]]] = {name: [] for name in VARIANTS}
    queries: dict[str, list[np.ndarray]] = {name: [] for name in VARIANTS}
    unused: Counter[str] = Counter()
    for seed in range(seeds):
        folds = [run_fold(model, {**settings, "seed": seed}, fold) for fold in make_folds(dataset, "letor5")]
        for _, names in folds:
            unused.update(names)
        for name in VARIANTS:
            means[name].append(np.mean([values[name].mean(axis=0) for values, _ in folds], axis=0).tolist())
            queries[name].append(np.concatenate([values[name] for values, _ in folds]))
    average = {name: np.mean(queries[name], axis=0)[:, METRICS.index("ndcg@5")] for name in VARIANTS}
    tests = {name: paired_tests(average[name], average[VARIANTS[0]]) for name in VARIANTS[1:]}
    return {
        "model": model, "settings": settings, "seeds": seeds, "metrics": METRICS, "means": means,
        "unused": dict(unused.most_common()), "folds": 5 * seeds,
        "tests": {name: {"difference": t.difference, "low": t.low, "high": t.high, "p": t.t_test}
                  for name, t in tests.items()},
    }  # fmt: skip


def table(result: dict[str, Any]) -> str:
    """The paper's rows and ours, with the deviation over seeds."""
    rows: list[list[object]] = [["paper", name, *(f"{v:.2f}" for v in row), None] for name, row in PAPER.items()]
    for name, runs in result["means"].items():
        values = 100 * np.array(runs)
        spread = values.std(axis=0, ddof=1) if len(runs) > 1 else np.full(len(METRICS), np.nan)
        rows.append(["ours", name, *(f"{m:.2f} ({s:.2f})" for m, s in zip(values.mean(axis=0), spread, strict=True))])
    lines = [render_table(["", "CRF", *METRICS], rows, "ll" + "r" * len(METRICS))]
    for name, test in result["tests"].items():
        low, high = 100 * test["low"], 100 * test["high"]
        said = f"NDCG@5 {100 * test['difference']:+.2f} (95%: {low:+.2f} to {high:+.2f}), p = {test['p']:.2f}"
        lines.append(f"{name}, against all experts, over queries: {said}")
    often = ", ".join(f"{name} in {count}" for name, count in result["unused"].items())
    return "\n".join([*lines, f"unused, of {result['folds']} models: {often or 'nobody'}"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mq2008", metavar="DATASET", required=True, help="the imported MQ2008-agg")
    parser.add_argument("--model", default="crf", help="crf or lambdarank (default crf)")
    parser.add_argument("--seeds", type=int, default=3, help="how many (default 3)")
    parser.add_argument("-p", dest="settings", action="append", default=[], metavar="key=value")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    given = parser.parse_args(arguments)
    try:
        pairs = [text.partition("=") for text in given.settings]
        if not all(equals for _, equals, _ in pairs):
            raise UsageError(f"-p: found {', '.join(given.settings)}, expected key=value")
        settings = {key: value for key, _, value in pairs}
        result = run(Dataset.open(given.mq2008), given.model, settings, given.seeds)
    except DistaggError as error:
        print(f"table6: {error}", file=sys.stderr)
        return error.exit_code
    print(table(result))
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
