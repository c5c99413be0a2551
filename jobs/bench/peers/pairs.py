"""One fit of Bradley-Terry strengths in a process of its own: python pairs.py CONTESTANT FOLDER OUT.

FOLDER holds winner.npy and loser.npy (int32) and size.txt. Everything from these arrays to the scores is timed:
building what the library wants, and the fit. What is compiled or imported on first use is so before, on small data.
Prints JSON; the scores go to OUT.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Fit = Callable[[int, np.ndarray, np.ndarray], tuple[float, np.ndarray]]  # -> seconds of building, scores
# The gradient wanted, for each comparison of an item; tolerances are the loosest, by powers of ten, that give it.
CLOSE = 1e-5


def ours(size: int, winner: np.ndarray, loser: np.ndarray) -> tuple[float, np.ndarray]:
    """From arrays through a chunk, with all that ``solve`` does: counts, graph, is there a fit, fit, likelihood."""
    import pyarrow as pa

    from distagg.dataset.chunk import Chunk
    from distagg.models import model_named
    from distagg.types import INDEX, LABEL, NO_LABEL, OFFSET, RANK

    start = time.perf_counter()
    count, none, empty = len(winner), np.zeros(2, OFFSET), np.zeros(0, INDEX)
    chunk = Chunk(
        n_experts=1, positions=np.zeros(1, OFFSET), query_ids=pa.array(["all"]), parts=pa.array([""]),
        item_offsets=np.array([0, size]), item_ids=pa.nulls(0, pa.string()), labels=np.full(size, NO_LABEL, LABEL),
        missed_offsets=none, missed_labels=np.zeros(0, LABEL), list_offsets=none, list_expert=empty,
        entry_offsets=np.zeros(1, OFFSET), entry_item=empty, entry_rank=np.zeros(0, RANK),
        entry_score=np.zeros(0, RANK), pair_offsets=np.array([0, count]), pair_expert=np.zeros(count, INDEX),
        pair_winner=winner, pair_loser=loser, pair_weight=np.ones(count), pair_tie=np.zeros(count, np.bool_),
    )  # fmt: skip
    built = time.perf_counter() - start
    return built, model_named("bradley_terry", {"prior": "none", "tolerance": 1e-6}).solve(chunk, {}).score


def imported(size: int, winner: np.ndarray, loser: np.ndarray) -> tuple[float, np.ndarray]:
    """Ours from an Arrow table of ids: the import (ids to positions, sorting, checks) is the building."""
    import pyarrow as pa

    from distagg.dataset import Dataset
    from distagg.models import model_named

    start = time.perf_counter()
    names = pa.array([str(i) for i in range(size)])
    columns = {
        name: pa.DictionaryArray.from_arrays(pa.array(codes), names).dictionary_decode()
        for name, codes in (("winner", winner), ("loser", loser))
    }
    dataset = Dataset.from_arrow(pa.table(columns))
    built = time.perf_counter() - start
    (chunk,) = dataset.chunks()
    own = model_named("bradley_terry", {"prior": "none", "tolerance": 1e-6}).solve(chunk, {}).score
    score = np.empty(size)
    score[[int(name) for name in chunk.item_ids.to_pylist()]] = own
    return built, score


def choix(size: int, winner: np.ndarray, loser: np.ndarray) -> tuple[float, np.ndarray]:
    """i-LSR on the dense matrix, its fastest way here."""
    import choix

    start = time.perf_counter()
    matrix = (
        np.bincount(winner.astype(np.int64) * size + loser, minlength=size * size).reshape(size, size).astype(float)
    )
    built = time.perf_counter() - start
    return built, choix.ilsr_pairwise_dense(matrix, tol=1e-4)


def evalica(size: int, winner: np.ndarray, loser: np.ndarray) -> tuple[float, np.ndarray]:
    import evalica
    import pandas as pd

    start = time.perf_counter()
    won = [evalica.Winner.X] * len(winner)
    built = time.perf_counter() - start
    result = evalica.bradley_terry(winner, loser, won, index=pd.Index(np.arange(size)), tolerance=1e-2, limit=1000)
    return built, np.log(result.scores.sort_index().to_numpy())


def sklearn(size: int, winner: np.ndarray, loser: np.ndarray) -> tuple[float, np.ndarray]:
    """Logistic regression without penalty on a sparse matrix of +1 and -1."""
    import scipy.sparse
    from sklearn.linear_model import LogisticRegression

    start = time.perf_counter()
    count = len(winner)
    y = (np.arange(count) % 2).astype(np.int8)  # both classes: every other row is turned round
    sign = np.where(y == 1, 1.0, -1.0)
    values = np.column_stack([sign, -sign]).ravel()
    columns = np.column_stack([winner, loser]).ravel()
    x = scipy.sparse.csr_array((values, columns, np.arange(0, 2 * count + 1, 2, dtype=np.int32)), shape=(count, size))
    built = time.perf_counter() - start
    model = LogisticRegression(C=np.inf, fit_intercept=False, tol=2 * CLOSE / size, max_iter=1000)
    return built, model.fit(x, y).coef_[0]


def crowdkit(size: int, winner: np.ndarray, loser: np.ndarray) -> tuple[float, np.ndarray]:
    import pandas as pd
    from crowdkit.aggregation import BradleyTerry

    start = time.perf_counter()
    frame = pd.DataFrame({"worker": "w", "left": winner, "right": loser, "label": winner})
    built = time.perf_counter() - start
    return built, np.log(BradleyTerry(n_iter=100, tol=1e-12).fit_predict(frame).sort_index().to_numpy())


CONTESTANTS: dict[str, Fit] = {
    "ours": ours,
    "ours, with import": imported,
    "choix": choix,
    "evalica": evalica,
    "sklearn": sklearn,
    "crowd-kit": crowdkit,
}


def main() -> None:
    fit, folder, out = CONTESTANTS[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3])
    winner, loser = np.load(folder / "winner.npy"), np.load(folder / "loser.npy")
    size = int((folder / "size.txt").read_text())
    for items in (8, 400):  # both ways of counting
        ring = np.arange(items, dtype=np.int32)
        fit(items, ring, np.roll(ring, 1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    built, score = fit(size, winner, loser)
    seconds = time.perf_counter() - start
    np.save(out, np.asarray(score, dtype=float))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result: dict[str, Any] = {"seconds": seconds, "built": built, "peak_mb": peak / 1024, "before_mb": before / 1024}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
