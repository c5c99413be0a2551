"""Root mean squared error of pmf and neighbours on five splits of MovieLens 100K, beside scikit-surprise's.

    python jobs/reproduce/rmse.py ml-100k/u.data ml-100k/u.item [-c pmf.factors=20]

Split k tests on the k-th fifth of the lines of u.data, which are in random order, and trains on the rest: the recipe of
mku.sh, which made u1 to u5. The figures beside ours are scikit-surprise 1.1.5's on these same splits, with its defaults
(KNNBaseline: pearson_baseline between users); they are not run here.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from distagg.engine import import_dataset
from distagg.engine.complete import fit_completion, predict
from distagg.errors import DistaggError, UsageError
from distagg.models import COMPLETIONS, completion_named
from distagg.reports.terminal import render_table

FOLDS = 5
SURPRISE = {
    "surprise BaselineOnly": (0.9599, 0.9477, 0.9405, 0.9383, 0.9423),
    "surprise SVD": (0.9515, 0.9412, 0.9382, 0.9318, 0.9348),
    "surprise SVD(biased=False), PMF": (0.9645, 0.9560, 0.9523, 0.9489, 0.9497),
    "surprise KNNWithMeans": (0.9649, 0.9572, 0.9498, 0.9448, 0.9472),
    "surprise KNNBaseline": (0.9335, 0.9251, 0.9198, 0.9202, 0.9237),
}


def errors(ratings: Path, items: Path, settings: dict[str, dict[str, str]]) -> dict[str, list[float]]:
    """The error of each completion on each split."""
    lines = ratings.read_text(encoding="utf-8").splitlines()
    part = np.arange(len(lines)) * FOLDS // len(lines)
    found: dict[str, list[float]] = {name: [] for name in ("pmf", "neighbours")}
    with tempfile.TemporaryDirectory() as folder:
        for fold in range(FOLDS):
            base = Path(folder) / f"{fold}.base"
            base.write_text("\n".join(line for at, line in enumerate(lines) if part[at] != fold) + "\n")
            dataset = import_dataset("ratings", [base], Path(folder) / str(fold), items=items)
            ids = next(dataset.chunks()).item_ids.to_pylist()
            place = {item: at for at, item in enumerate(ids)}
            who = {expert: at for at, expert in enumerate(dataset.experts)}
            rows = [line.split() for at, line in enumerate(lines) if part[at] == fold]
            rows = [row for row in rows if row[0] in who]
            users, movies = np.array([who[row[0]] for row in rows]), np.array([place[row[1]] for row in rows])
            truth = np.array([float(row[2]) for row in rows])
            for name in found:
                through = fit_completion(completion_named(name, settings.get(name, {})), dataset)
                said = predict(dataset, through, users, movies)
                found[name].append(float(np.sqrt(np.mean((said - truth) ** 2))))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("ratings", type=Path, help="u.data")
    parser.add_argument("items", type=Path, help="u.item")
    parser.add_argument("-c", dest="settings", action="append", default=[], metavar="COMPLETION.key=value")
    chosen = parser.parse_args(arguments)
    settings: dict[str, dict[str, str]] = {}
    try:
        for word in chosen.settings:
            (name, dot, rest), equals = word.partition("."), "=" in word
            if name not in COMPLETIONS or not dot or not equals:
                raise UsageError(f"-c {word}: expected COMPLETION.key=value")
            key, _, value = rest.partition("=")
            settings.setdefault(name, {})[key] = value
        found = errors(chosen.ratings, chosen.items, settings)
    except DistaggError as error:
        print(f"rmse: {error}", file=sys.stderr)
        return error.exit_code
    both = found | {name: list(values) for name, values in SURPRISE.items()}
    rows = [[name, *(f"{value:.4f}" for value in [*values, np.mean(values)])] for name, values in both.items()]
    print(render_table(["", *(f"split {k}" for k in range(1, FOLDS + 1)), "mean"], rows, "l" + "r" * (FOLDS + 1)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
