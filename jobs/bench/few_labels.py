"""``blend`` against each of its members on planted data of six kinds, with few labels and many experts.

``python jobs/bench/few_labels.py [--seeds N] [--kinds few,deep] [--goal map]`` prints the table of the results guide:
NDCG@10 and MAP on test queries, mean over seeds, and a paired test of ``blend`` against its best member, over the test
queries of all seeds. Each seed is a dataset: three parts of its labelled queries teach, one validates, and the test
queries are others. ``--json`` keeps the values of every query.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distagg.dataset import Dataset
from distagg.dataset.frames import hold_source
from distagg.engine.compare import evaluate_model
from distagg.engine.fitting.fit import Goal, fit
from distagg.metrics.significance import paired_tests
from distagg.models import Model, model_named
from distagg.models.boosted.fusion import Fusion
from distagg.sources.deep import DeepSource
from distagg.sources.synthetic import SyntheticSource

METRICS = ("ndcg@10", "map")


@dataclass(frozen=True)
class Planted:
    """A kind of planted data: its source by number of queries and seed, its labelled queries and its test queries."""

    source: Callable[[int, int], Any]
    labelled: int
    test: int


KINDS = {
    "few": Planted(lambda n, seed: SyntheticSource(n, 40, 60, seed=seed), 40, 80),
    "deep": Planted(lambda n, seed: DeepSource(n, 2000, 60, depth=200, seed=seed), 40, 40),
    "adversarial": Planted(lambda n, seed: SyntheticSource(n, 20, 25, random=0.2, adversarial=0.5, seed=seed), 80, 80),
    "dominant": Planted(lambda n, seed: SyntheticSource(n, 40, 25, random=0.88, adversarial=0.0, seed=seed), 40, 80),
    "scores": Planted(lambda n, seed: DeepSource(n, 200, 20, depth=50, missing=0.2, random=0.4, seed=seed), 80, 80),
    "shallow": Planted(lambda n, seed: SyntheticSource(n, 20, 25, seed=seed), 300, 100),
}


def members(seed: int) -> dict[str, Model]:
    """The models to compare; ``rrf`` and ``combsum`` are those of ``blend``, with settings and weights from labels."""
    small = {"crf": 4, "lambdamart": 4, "lambdarank": 4}
    return {
        "rrf untrained": model_named("rrf"),
        "bestinput": model_named("bestinput"),
        "rrf": Fusion(rule="rrf"),
        "combsum": Fusion(rule="combsum"),
        "lambdarank": model_named("lambdarank", seed=seed),
        "crf": model_named("crf", seed=seed),
        "stagg": model_named("stagg", seed=seed),
        "ssra": model_named("ssra"),
        "lambdamart": model_named("lambdamart", seed=seed),
        "blend": model_named("blend", small, seed=seed),
    }


def divided(kind: Planted, seed: int) -> tuple[Dataset, Dataset, Dataset]:
    """Training, validation and test queries: of every ``modulus`` queries the first three, the fourth, and the rest."""
    unit = kind.labelled // 4
    modulus = 4 + kind.test // unit if kind.test >= unit else 5
    data = hold_source(kind.source(unit * modulus, seed))
    residues = ({0, 1, 2}, {3}, set(range(4, modulus)))
    train, valid, test = (data.select(fold=(modulus, some)) for some in residues)
    return train, valid, test


def measure(kind: Planted, seed: int, names: list[str], goal: str) -> dict[str, np.ndarray]:
    """The metrics of every test query (Q, metrics), by model."""
    train, valid, test = divided(kind, seed)
    values = {}
    for name, model in members(seed).items():
        if names and name not in names:
            continue
        began = time.process_time()
        params = fit(model, train, valid=valid, goal=Goal(goal, "trec")) if model.learns else {}
        values[name] = evaluate_model(model, params, test, METRICS, protocol="trec")[1]
        spent = time.process_time() - began
        print(f"#   {name}: {100 * np.nanmean(values[name], axis=0).round(4)}, {spent:.1f} s", flush=True)
    return values


def report(name: str, seeds: list[dict[str, np.ndarray]]) -> None:
    """Rows of the table: each model's means, and ``blend`` minus it with its interval and p-value."""
    together = {model: np.concatenate([values[model] for values in seeds]) for model in seeds[0]}
    for model, values in together.items():
        cells = []
        for m in range(len(METRICS)):
            cell = f"{100 * np.nanmean(values[:, m]):.1f}"
            if "blend" in together and model != "blend":
                test = paired_tests(together["blend"][:, m], values[:, m])
                cell += f" | {100 * test.difference:+.2f} (p = {test.t_test:.3f})"
            cells.append(cell if "|" in cell else cell + " | ")
        print(f"| {name} | `{model}` | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="datasets of each kind (default 10)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of data, by comma (default all)")
    parser.add_argument("--models", default="", help="models, by comma (default all)")
    parser.add_argument("--goal", default="map", help="the metric that fits optimise (default map)")
    parser.add_argument("--json", help="file for the values of every test query")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    began, kept = time.process_time(), {}
    for name in arguments.kinds.split(","):
        seeds = []
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            print(f"# {name}, seed {seed}", flush=True)
            names = [model for model in arguments.models.split(",") if model]
            seeds.append(measure(KINDS[name], seed, names, arguments.goal))
        report(name, seeds)
        kept[name] = [{model: values.tolist() for model, values in row.items()} for row in seeds]
    print(f"# {time.process_time() - began:.0f} s of the processor")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(kept), "utf-8")


if __name__ == "__main__":
    main()
