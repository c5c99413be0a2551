"""The peers, each as its manual would have it: python theirs.py PEER TASK FOLDER ANSWER.

Runs in the peers' environment and needs nothing of ours. A script reads the task's file, computes, and writes rows
(query, item) in ranked order or (item, score). Each library is used in its fastest documented way that we know of;
settings that loosen a tolerance are the loosest, by powers of ten, that still solve the problem.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Job = Callable[[Path], dict[str, Any]]
COLUMNS = ["query", "q0", "item", "place", "score", "expert"]


def pandas_rrf(folder: Path) -> dict[str, Any]:
    import pandas as pd

    frames = [pd.read_csv(file, sep=" ", names=COLUMNS, engine="pyarrow") for file in sorted(folder.glob("run*.txt"))]
    lists = pd.concat(frames)
    lists["score"] = 1.0 / (60.0 + lists["place"])
    fused = lists.groupby(["query", "item"], as_index=False)["score"].sum()
    fused = fused.sort_values(["query", "score"], ascending=[True, False])
    return {"query": fused["query"].to_list(), "item": fused["item"].to_list()}


def polars_rrf(folder: Path) -> dict[str, Any]:
    import polars as pl

    lists = pl.scan_csv(str(folder / "run*.txt"), separator=" ", has_header=False, new_columns=COLUMNS)
    points = lists.select("query", "item", (1.0 / (60.0 + pl.col("place"))).alias("score"))
    fused = points.group_by("query", "item").agg(pl.col("score").sum())
    found = fused.sort(["query", "score"], descending=[False, True]).collect()
    return {"query": found["query"].to_arrow(), "item": found["item"].to_arrow()}


def ranx_fuse(method: str) -> Job:
    def fuse_runs(folder: Path) -> dict[str, Any]:
        warnings.filterwarnings("ignore")  # numba's, about its integer casts
        from ranx import Run, fuse

        runs = [Run.from_file(str(file), kind="trec") for file in sorted(folder.glob("run*.txt"))]
        fused = fuse(runs, norm=None, method=method).to_dict()
        ranked = [(q, i) for q, scores in fused.items() for i in sorted(scores, key=scores.get, reverse=True)]
        return {"query": [q for q, _ in ranked], "item": [i for _, i in ranked]}

    return fuse_runs


def pyflagr_fuse(kind: str, method: str) -> Job:
    def fuse_lists(folder: Path) -> dict[str, Any]:
        import importlib

        made = getattr(importlib.import_module(f"pyflagr.{kind}"), method)(eval_pts=10)
        found, _ = made.aggregate(input_file=str(folder / "runs.csv"))
        return {"query": found["Query"].to_list(), "item": found["ItemID"].to_list()}

    return fuse_lists


def _coded(folder: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names, and winners and losers as their numbers."""
    battles = pq.read_table(folder / "battles.parquet")
    both = pa.chunked_array([*battles["winner"].chunks, *battles["loser"].chunks]).combine_chunks().dictionary_encode()
    codes = both.indices.to_numpy()
    return both.dictionary.to_pylist(), codes[: len(battles)], codes[len(battles) :]


def choix_battles(folder: Path) -> dict[str, Any]:
    import choix

    names, winner, loser = _coded(folder)
    size = len(names)
    flat = np.bincount(winner.astype(np.int64) * size + loser, minlength=size * size)
    return {"item": names, "score": choix.ilsr_pairwise_dense(flat.reshape(size, size).astype(float), tol=1e-4)}


def evalica_battles(folder: Path) -> dict[str, Any]:
    import evalica
    import pandas as pd

    names, winner, loser = _coded(folder)
    won = [evalica.Winner.X] * len(winner)
    index = pd.Index(np.arange(len(names)))
    result = evalica.bradley_terry(winner, loser, won, index=index, tolerance=1e-2, limit=1000)
    return {"item": names, "score": np.log(result.scores.sort_index().to_numpy())}


def sklearn_battles(folder: Path) -> dict[str, Any]:
    """Logistic regression without a penalty on a sparse matrix of +1 and -1, as arenas do it."""
    import scipy.sparse
    from sklearn.linear_model import LogisticRegression

    names, winner, loser = _coded(folder)
    count, size = len(winner), len(names)
    y = (np.arange(count) % 2).astype(np.int8)  # both classes: every other row is turned round
    sign = np.where(y == 1, 1.0, -1.0)
    values, columns = np.column_stack([sign, -sign]).ravel(), np.column_stack([winner, loser]).ravel()
    x = scipy.sparse.csr_array((values, columns, np.arange(0, 2 * count + 1, 2, dtype=np.int32)), shape=(count, size))
    model = LogisticRegression(C=np.inf, fit_intercept=False, tol=2e-5 / size, max_iter=1000)
    return {"item": names, "score": model.fit(x, y).coef_[0]}


def crowdkit_battles(folder: Path) -> dict[str, Any]:
    from crowdkit.aggregation import BradleyTerry

    battles = pq.read_table(folder / "battles.parquet").to_pandas()
    frame = battles.rename(columns={"winner": "left", "loser": "right"}).assign(worker="w", label=battles["winner"])
    found = BradleyTerry(n_iter=100, tol=1e-12).fit_predict(frame)
    return {"item": [str(name) for name in found.index], "score": np.log(found.to_numpy())}


def choix_orders(folder: Path) -> dict[str, Any]:
    import choix

    table = pq.read_table(folder / "orders.parquet")
    items = table["item"].to_numpy().reshape(int(table["list"].to_numpy()[-1]) + 1, -1)
    size = int(items.max()) + 1
    return {"item": [str(i) for i in range(size)], "score": choix.ilsr_rankings(size, items.tolist(), tol=1e-4)}


def corankco_orders(folder: Path) -> dict[str, Any]:
    """BioConsert, every query a dataset of its own; unlisted items stand last."""
    from corankco.algorithms.bioconsert.bioconsert import BioConsert
    from corankco.dataset import Dataset
    from corankco.ranking import Ranking
    from corankco.scoringscheme import ScoringScheme

    lists: dict[str, dict[str, list[str]]] = {}
    for file in sorted(folder.glob("run*.txt")):
        for line in file.open(encoding="utf-8"):
            query, _, item, _, _, expert = line.split()
            lists.setdefault(query, {}).setdefault(expert, []).append(item)
    scheme = ScoringScheme([[0.0, 1.0, 0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0, 1.0, 0.0]])
    rows = []
    for query, by_expert in lists.items():
        dataset = Dataset([Ranking([{item} for item in items]) for items in by_expert.values()])
        found = BioConsert().compute_consensus_rankings(dataset, scheme, True).consensus_rankings[0]
        rows += [(query, str(element.value)) for bucket in found.buckets for element in bucket]
    return {"query": [q for q, _ in rows], "item": [i for _, i in rows]}


def lightgbm_labelled(folder: Path) -> dict[str, Any]:
    """LightGBM's ranker on the ranks as they are, missing ones as such; stops early on the validation queries."""
    import lightgbm

    wide = pq.read_table(folder / "wide.parquet")
    place, label = wide["place"].to_numpy(), wide["label"].to_numpy()
    x = np.column_stack([wide[name].to_numpy() for name in wide.column_names if name[1:].isdigit()])

    def part(residues: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        here = np.isin(place % 5, residues)
        return x[here], label[here], np.unique(place[here], return_counts=True)[1]

    (x_train, y_train, g_train), (x_valid, y_valid, g_valid) = part((1, 2, 3)), part((4,))
    ranker = lightgbm.LGBMRanker(n_estimators=300, learning_rate=0.05, num_leaves=15, verbosity=-1)
    stop = lightgbm.early_stopping(30, verbose=False)
    ranker.fit(
        x_train,
        y_train,
        group=g_train,
        eval_set=[(x_valid, y_valid)],
        eval_group=[g_valid],
        eval_at=[5],
        callbacks=[stop],
    )
    test = np.flatnonzero(place % 5 == 0)
    order = test[np.lexsort([-ranker.predict(x[test]), place[test]])]
    return {"query": wide["query"].take(order), "item": wide["item"].take(order)}


JOBS: dict[tuple[str, str], Job] = {
    ("pandas", "fusion by reciprocal ranks"): pandas_rrf,
    ("polars", "fusion by reciprocal ranks"): polars_rrf,
    ("ranx", "fusion by reciprocal ranks"): ranx_fuse("rrf"),
    ("ranx", "fusion by Condorcet"): ranx_fuse("condorcet"),
    ("pyflagr", "fusion by Condorcet"): pyflagr_fuse("Majoritarian", "CondorcetWinners"),
    ("pyflagr", "fusion by a Markov chain (MC4)"): pyflagr_fuse("MarkovChains", "MC4"),
    ("choix", "battles to strengths (Bradley-Terry)"): choix_battles,
    ("evalica", "battles to strengths (Bradley-Terry)"): evalica_battles,
    ("scikit-learn", "battles to strengths (Bradley-Terry)"): sklearn_battles,
    ("crowd-kit", "battles to strengths (Bradley-Terry)"): crowdkit_battles,
    ("choix", "lists to strengths (Plackett-Luce)"): choix_orders,
    ("corankco", "a consensus order (Kemeny)"): corankco_orders,
    ("LightGBM", "learning from labels"): lightgbm_labelled,
}


def main() -> None:
    peer, task, folder, answer = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
    pq.write_table(pa.table(JOBS[peer, task](folder)), answer)


if __name__ == "__main__":
    main()
