"""What users do, each as a job that several libraries can do: the same input file, the same output wanted.

A task makes its input in a folder from a size, and judges an answer. ``sizes`` are the one that all are timed at and
the next one, at which some stop: there the question is what goes wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Size = dict[str, int]


@dataclass(frozen=True)
class Task:
    """A job: how its input is made, who can do it, and how good an answer is."""

    name: str
    what: str
    sizes: tuple[Size, Size]
    quick: Size
    make: Callable[[Path, Size], None]
    judge: Callable[[Path, Path], dict[str, float]]  # folder of the input, answer -> figures
    peers: tuple[str, ...]
    good: str  # the figure of ``judge`` that says whether an answer is one
    least: float


def write_runs(folder: Path, size: Size) -> None:
    """Runs of search engines in TREC's format: each engine sees the truth through noise and gives its best 100."""
    draw = np.random.default_rng(0)
    files = [(folder / f"run{e:02d}.txt").open("w", encoding="utf-8") for e in range(size["experts"])]
    with (folder / "qrels.txt").open("w", encoding="utf-8") as qrels:
        for q in range(size["queries"]):
            truth = draw.normal(size=2 * size["depth"])
            labels = np.digitize(truth, [0.8, 1.6])
            qrels.writelines(f"q{q:06d} 0 d{i:06d} {label}\n" for i, label in enumerate(labels))
            for e, file in enumerate(files):
                seen = truth + draw.normal(scale=0.5 + 2.0 * e / len(files), size=len(truth))
                best = np.argsort(-seen)[: size["depth"]]
                file.writelines(
                    f"q{q:06d} Q0 d{item:06d} {place} {seen[item]:.4f} e{e:02d}\n"
                    for place, item in enumerate(best, start=1)
                )
    for file in files:
        file.close()
    _write_csv(folder, size)


def _write_csv(folder: Path, size: Size) -> None:
    """The same for those who take one CSV: query, voter, item, rank, score, set."""
    with (folder / "runs.csv").open("w", encoding="utf-8") as out:
        for e in range(size["experts"]):
            for line in (folder / f"run{e:02d}.txt").read_text(encoding="utf-8").splitlines():
                query, _, item, place, score, expert = line.split()
                out.write(f"{query},{expert},{item},{place},{score},d\n")


def judge_runs(folder: Path, answer: Path) -> dict[str, float]:
    """Mean NDCG@10 of rows (query, item) in ranked order, by plain code that belongs to nobody."""
    labels: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels.txt").read_text(encoding="utf-8").splitlines():
        query, _, item, label = line.split()
        labels.setdefault(query, {})[item] = int(label)
    table = pq.read_table(answer)
    ranked: dict[str, list[str]] = {}
    for query, item in zip(table["query"].to_pylist(), table["item"].to_pylist(), strict=True):
        ranked.setdefault(query, []).append(item)
    discount = 1.0 / np.log2(np.arange(2, 12))
    values = []
    for query, known in labels.items():
        gain = [2.0 ** known.get(item, 0) - 1.0 for item in ranked.get(query, [])[:10]]
        best = np.sort([2.0**label - 1.0 for label in known.values()])[::-1][:10]
        if not best.any():
            continue  # nothing relevant
        values.append(float(np.dot(gain, discount[: len(gain)]) / np.dot(best, discount[: len(best)])))
    return {"NDCG@10": float(np.mean(values))}


def judge_consensus(folder: Path, answer: Path) -> dict[str, float]:
    """Pairs of a query that a list orders the other way, unlisted items last, over all lists; and who was answered."""
    table = pq.read_table(answer)
    place: dict[str, dict[str, int]] = {}
    for query, item in zip(table["query"].to_pylist(), table["item"].to_pylist(), strict=True):
        place.setdefault(query, {})[item] = len(place.get(query, {}))
    lists: dict[str, list[list[str]]] = {}
    for file in sorted(folder.glob("run*.txt")):
        for query, items in _ranked(file).items():
            lists.setdefault(query, []).append(items)
    wrong = 0
    for query, own in lists.items():
        for items in own:
            behind = [item for item in place[query] if item not in set(items)]
            listed = np.array([place[query][item] for item in items])
            wrong += int((listed[:, None] > listed[None, :])[np.triu_indices(len(listed), 1)].sum())
            wrong += int((listed[:, None] > np.array([place[query][item] for item in behind])[None, :]).sum())
    return {"discordant pairs a query": wrong / len(lists), "answered": len(place) / len(lists)}


def _ranked(file: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        query, _, item, *_ = line.split()
        found.setdefault(query, []).append(item)
    return found


def write_battles(folder: Path, size: Size) -> None:
    """Who beat whom, by names."""
    draw = np.random.default_rng(0)
    truth = draw.normal(size=size["items"])
    one = draw.integers(0, size["items"], size["pairs"])
    two = (one + draw.integers(1, size["items"], size["pairs"])) % size["items"]
    first = draw.random(size["pairs"]) < 1.0 / (1.0 + np.exp(truth[two] - truth[one]))
    names = pa.array([f"m{i:06d}" for i in range(size["items"])])
    columns = {"winner": np.where(first, one, two), "loser": np.where(first, two, one)}
    pq.write_table(
        pa.table({name: names.take(pa.array(at)) for name, at in columns.items()}), folder / "battles.parquet"
    )


def judge_battles(folder: Path, answer: Path) -> dict[str, float]:
    """How close the scores are to the maximum of the likelihood: the digits of the gradient, for each comparison."""
    battles, found = pq.read_table(folder / "battles.parquet"), pq.read_table(answer)
    place = {item: n for n, item in enumerate(found["item"].to_pylist())}
    score = found["score"].to_numpy()
    winner, loser = (_codes(battles[name], place) for name in ("winner", "loser"))
    surprise = 1.0 / (1.0 + np.exp(score[winner] - score[loser]))
    slope = np.bincount(winner, surprise, len(score)) - np.bincount(loser, surprise, len(score))
    each = np.abs(slope) / (np.bincount(winner, minlength=len(score)) + np.bincount(loser, minlength=len(score)))
    return {"digits of the gradient": float(-np.log10(max(each.max(), 1e-16)))}


def _codes(column: pa.ChunkedArray, place: dict[str, int]) -> np.ndarray:
    coded = column.combine_chunks().dictionary_encode()
    return np.array([place[name] for name in coded.dictionary.to_pylist()])[coded.indices.to_numpy()]


def write_orders(folder: Path, size: Size) -> None:
    """Lists of some of the items, best first, drawn from Plackett-Luce: list, item, rank."""
    draw = np.random.default_rng(0)
    truth = draw.normal(size=size["items"])
    shown = np.stack([draw.choice(size["items"], size["long"], replace=False) for _ in range(size["lists"])])
    order = np.argsort(-(truth[shown] + draw.gumbel(size=shown.shape)), axis=1)
    items = np.take_along_axis(shown, order, axis=1)
    columns = {
        "list": np.repeat(np.arange(size["lists"]), size["long"]),
        "item": items.ravel(),
        "rank": np.tile(np.arange(1, size["long"] + 1), size["lists"]),
    }
    pq.write_table(pa.table(columns), folder / "orders.parquet")
    (folder / "size.json").write_text(json.dumps(size))


def judge_orders(folder: Path, answer: Path) -> dict[str, float]:
    """Mean log likelihood of a choice."""
    size: Size = json.loads((folder / "size.json").read_text())
    found = pq.read_table(answer)
    score = np.zeros(size["items"])
    score[found["item"].to_numpy().astype(int)] = found["score"].to_numpy()
    items = pq.read_table(folder / "orders.parquet")["item"].to_numpy().reshape(size["lists"], size["long"])
    value = score[items]
    rest = np.logaddexp.accumulate(value[:, ::-1], axis=1)[:, ::-1]
    return {"log likelihood of a choice": float((value - rest)[:, :-1].mean())}


def write_labelled(folder: Path, size: Size) -> None:
    """Labelled queries of the shape of MQ2008-agg: our dataset, and a wide table of ranks for others; a fifth tests."""
    from distagg.dataset import Dataset, write_dataset
    from distagg.sources.synthetic import SyntheticSource

    write_dataset(SyntheticSource(queries=size["queries"], shape="mq2008", adversarial=0.2, seed=0), folder / "dataset")
    rows = []
    for chunk in Dataset.open(folder / "dataset").chunks():
        table = np.full((chunk.n_items, chunk.n_experts), np.nan)
        expert = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
        table[chunk.entry_row(), expert] = chunk.entry_rank
        owner = chunk.item_query()
        columns: dict[str, Any] = {"query": chunk.query_ids.take(pa.array(owner)), "item": chunk.item_ids}
        columns |= {"label": chunk.labels, "place": chunk.positions[owner]}
        rows.append(pa.table({**columns, **{f"e{e}": table[:, e] for e in range(chunk.n_experts)}}))
    wide = pa.concat_tables(rows)
    pq.write_table(wide, folder / "wide.parquet")
    labels = zip(*(wide[name].to_pylist() for name in ("query", "item", "label", "place")), strict=True)
    (folder / "qrels.txt").write_text("".join(f"{q} 0 {i} {v}\n" for q, i, v, place in labels if place % 5 == 0))


RUNS = {"queries": 100, "experts": 10, "depth": 100}
TASKS = (
    Task(
        "fusion by reciprocal ranks", "runs in TREC's format to one ranking, written as Parquet",
        ({"queries": 500, "experts": 20, "depth": 100}, {"queries": 5000, "experts": 20, "depth": 100}), RUNS,
        write_runs, judge_runs, ("ranx", "pandas", "polars"), "NDCG@10", 0.5,
    ),
    Task(
        "fusion by Condorcet", "the same by majorities between pairs",
        ({"queries": 100, "experts": 10, "depth": 50}, {"queries": 500, "experts": 20, "depth": 100}),
        {"queries": 20, "experts": 5, "depth": 20}, write_runs, judge_runs, ("ranx", "pyflagr"), "NDCG@10", 0.5,
    ),
    Task(
        "fusion by a Markov chain (MC4)", "the same by a walk from item to item",
        ({"queries": 100, "experts": 10, "depth": 50}, {"queries": 500, "experts": 20, "depth": 100}),
        {"queries": 20, "experts": 5, "depth": 20}, write_runs, judge_runs, ("pyflagr",), "NDCG@10", 0.5,
    ),
    Task(
        "battles to strengths (Bradley-Terry)", "a Parquet file of winners and losers to a score for every name",
        ({"items": 1000, "pairs": 1_000_000}, {"items": 10_000, "pairs": 10_000_000}), {"items": 50, "pairs": 5000},
        write_battles, judge_battles, ("choix", "evalica", "scikit-learn", "crowd-kit"), "digits of the gradient", 5.0,
    ),
    Task(
        "lists to strengths (Plackett-Luce)", "a Parquet file of ordered lists to a score for every item",
        ({"lists": 2000, "items": 500, "long": 30}, {"lists": 20_000, "items": 2000, "long": 50}),
        {"lists": 200, "items": 30, "long": 10}, write_orders, judge_orders, ("choix",),
        "log likelihood of a choice", -10.0,
    ),
    Task(
        "a consensus order (Kemeny)", "the order with the fewest discordant pairs, query by query",
        ({"queries": 50, "experts": 10, "depth": 15}, {"queries": 200, "experts": 20, "depth": 50}),
        {"queries": 5, "experts": 4, "depth": 8}, write_runs, judge_consensus, ("corankco",), "answered", 1.0,
    ),
    Task(
        "learning from labels", "labelled lists to a ranking of the queries held out",
        ({"queries": 800}, {"queries": 16_000}), {"queries": 60}, write_labelled, judge_runs, ("LightGBM",),
        "NDCG@10", 0.2,
    ),
)  # fmt: skip
