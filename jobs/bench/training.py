"""How long training takes, and what it reaches: our supervised models beside LightGBM on the same features.

    python jobs/bench/training.py [--data DATASET] [--quick] [--json FILE]

Five folds of a labelled dataset (MQ2008-agg or MQ2007-agg; synthetic data of its shape without --data): processor
seconds to fit one fold, compiling left out, median over folds with least and most; NDCG@5 and MAP on test queries.
LightGBM grows its trees with its own early stopping on its own NDCG; its features are those of lambdamart, and making
them counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from goals import print_table

from distagg.dataset import Dataset, write_dataset
from distagg.engine.compare import evaluate_model
from distagg.engine.fitting.fit import fit
from distagg.engine.fitting.folds import Fold, make_folds
from distagg.metrics import highest_label, parse_metrics, score_chunk
from distagg.models import model_named
from distagg.models.boosted.model import LambdaMart
from distagg.sources.synthetic import SyntheticSource
from distagg.types import NO_LABEL

METRICS = ("ndcg@5", "map")
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "crf": ("crf", {}),
    "crf, serial": ("crf", {"mode": "serial"}),
    "crf, average": ("crf", {"mode": "average"}),
    "lambdarank": ("lambdarank", {}),
    "lambdarank, serial": ("lambdarank", {"mode": "serial"}),
    "lambdamart": ("lambdamart", {}),
    "blend": ("blend", {}),
}
QUICK = {
    "crf": {"rounds": 3},
    "lambdarank": {"rounds": 3},
    "lambdamart": {"trees": 10},
    "blend": {"lambdamart": 1, "crf": 1},
}
PEER = "LightGBM"


def ours(name: str, settings: dict[str, Any], fold: Fold) -> tuple[float, np.ndarray]:
    """Seconds to fit, and the metrics on the test queries."""
    model = model_named(name, settings)
    began = time.process_time()
    params = fit(model, fold.train, valid=fold.valid)
    return time.process_time() - began, np.nanmean(evaluate_model(model, params, fold.test, METRICS)[1], axis=0)


def theirs(fold: Fold, trees: int) -> tuple[float, np.ndarray]:
    """The same of LightGBM alone."""
    import lightgbm

    began = time.process_time()
    tables = [table(data) for data in (fold.train, fold.valid)]
    train, valid = (lightgbm.Dataset(x, label, group=sizes) for x, label, sizes in tables)
    settings = {
        "objective": "lambdarank", "metric": "ndcg", "eval_at": [5], "learning_rate": 0.05, "num_leaves": 7,
        "min_data_in_leaf": 50, "feature_fraction": 0.3, "bagging_fraction": 0.7, "bagging_freq": 1, "verbosity": -1,
        "num_threads": 1, "deterministic": True, "seed": 0,
    }  # fmt: skip
    stop = lightgbm.early_stopping(50, verbose=False)
    booster = lightgbm.train(settings, train, trees, valid_sets=[valid], callbacks=[stop])
    spent = time.process_time() - began
    values = []
    for ref in fold.test.plan():
        chunk = ref.load(ids=False)
        scores, grade = booster.predict(LambdaMart().dense(chunk)), highest_label(fold.test.manifest)
        values.append(score_chunk(chunk, scores, parse_metrics(METRICS), protocol="letor", max_grade=grade))
    return spent, np.nanmean(np.concatenate(values), axis=0)


def table(data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    chunks = [ref.load(ids=False) for ref in data.plan()]
    known = [chunk.labels != NO_LABEL for chunk in chunks]
    sizes = [np.bincount(c.item_query()[k], minlength=c.n_queries) for c, k in zip(chunks, known, strict=True)]
    return (
        np.concatenate([LambdaMart().dense(c)[k] for c, k in zip(chunks, known, strict=True)]),
        np.concatenate([c.labels[k] for c, k in zip(chunks, known, strict=True)]),
        np.concatenate([s[s > 0] for s in sizes]),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="DATASET", help="a labelled dataset of five parts (default: synthetic)")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.data or str(Path(folder) / "synthetic")
        if not options.data:
            queries = 100 if options.quick else 800
            write_dataset(SyntheticSource(queries=queries, shape="mq2008", seed=1), Path(path))
        folds = make_folds(Dataset.open(path), "letor5")
        found = {PEER: [theirs(fold, 10 if options.quick else 300) for fold in folds]}
        for label, (name, settings) in SETTINGS.items():
            chosen = settings | (QUICK[name] if options.quick else {})
            ours(name, chosen, folds[0])  # compiles
            found[label] = [ours(name, chosen, fold) for fold in folds]
    base = statistics.median(seconds for seconds, _ in found[PEER])
    rows = []
    for label, runs in sorted(found.items(), key=lambda row: -statistics.median(s for s, _ in row[1])):
        seconds, values = [s for s, _ in runs], 100 * np.mean([v for _, v in runs], axis=0)
        rows.append(
            [
                label,
                f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})",
                f"{statistics.median(seconds) / base:.2f}",
                *(f"{value:.2f}" for value in values),
            ]
        )
    print_table(["model, slowest first", "seconds to fit a fold", f"times {PEER}'s", "ndcg@5", "map"], rows)
    if options.json:
        told = {label: [[s, v.tolist()] for s, v in runs] for label, runs in found.items()}
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
