"""What is measured on ratings: rankings of movies against users' completed ratings, and their ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distagg import evaluate_users, fit_completion, rank, solve
from distagg.dataset import Dataset
from distagg.engine.rank_options import Shown
from distagg.types import Floats
from jobs.reproduce.experiments import stopping
from jobs.reproduce.paper_completions import borda_order, fit_paper_completion

DEPTHS = tuple(f"ndcg@{k}" for k in range(1, 11))
CONSTANTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
DIGITS = 6
Models = Mapping[str, tuple[str, Mapping[str, Any]]]  # row -> model and settings


def _ranking(dataset: Dataset, model: str, given: Mapping[str, Any], shown: Shown | None = None) -> Any:
    with stopping(given):
        return rank(model, dataset, shown=shown or Shown(), **given)


def completed(
    dataset: Dataset,
    models: Models,
    completions: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Rankings against every user's completed ratings: NDCG by user; and with later gains halved.

    ``paper`` has the latter by the completions that are made like the paper's, and its Borda count.
    """
    rankings = {name: _ranking(dataset, model, given) for name, (model, given) in models.items()}
    fitted = {name: fit_completion(name, dataset, **given) for name, given in completions.items()}
    judged = _judged(rankings, {name: solve("borda", dataset, through=one).ranking for name, one in fitted.items()})
    found: dict[str, Any] = {}
    for name, tried in judged.items():
        values = evaluate_users(tried, dataset, fitted[name], DEPTHS).values
        half = _halved(_tops(tried), dataset, fitted[name])
        found[name] = {
            row: {"users": value.T.round(DIGITS).tolist(), "halved": half[row].tolist()}
            for row, value in values.items()
        }
    fitted = {name: fit_paper_completion(name, dataset) for name in completions}
    judged = _judged(_tops(rankings), {name: _first_by_borda(dataset, one) for name, one in fitted.items()})
    paper = {name: _halved(tops, dataset, fitted[name]) for name, tops in judged.items()}
    return {
        "completions": found,
        "paper": {name: {row: value.tolist() for row, value in half.items()} for name, half in paper.items()},
    }


def _judged(rankings: Mapping[str, Any], borda: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each completion judges: the rankings, and the Borda count of the other completions."""
    return {
        name: {**rankings, **{f"{other}, borda": one for other, one in borda.items() if other != name}}
        for name in borda
    }


def _tops(rankings: Mapping[str, Any]) -> dict[str, list[str]]:
    return {name: table["item"].to_pylist()[: len(DEPTHS)] for name, table in rankings.items()}


def _first_by_borda(dataset: Dataset, through: Any) -> list[str]:
    """The first items by the Borda count of completed ratings, equal ratings in the order of items."""
    (chunk,) = dataset.chunks()
    ratings = np.concatenate([ratings for _, ratings in through[0].rows(chunk, through[1])])
    return [str(chunk.item_ids[item]) for item in borda_order(ratings)[: len(DEPTHS)].tolist()]


def _halved(tops: Mapping[str, list[str]], dataset: Dataset, through: Any) -> dict[str, Floats]:
    """Mean NDCG by depth with gains of 2^(rating - 1) - 1, not 2^rating - 1, from the second position on.

    The ideal has the full gains. The figures of Volkovs & Zemel 2014, Table 2, come out so to 0.02.
    """
    depth = len(DEPTHS)
    discount = 1.0 / np.log2(np.arange(2, depth + 2))
    share = np.where(np.arange(depth) == 0, 1.0, 0.5)  # of 2^rating
    total = {name: np.zeros(depth) for name in tops}
    for chunk in dataset.chunks():
        place = {item: at for at, item in enumerate(chunk.item_ids.to_pylist())}
        columns = {name: [place[item] for item in top] for name, top in tops.items()}
        for _, ratings in through[0].rows(chunk, through[1]):
            power = np.exp2(ratings)
            most = np.cumsum((-np.sort(-power, axis=1)[:, :depth] - 1.0) * discount, axis=1)
            for name, top in columns.items():
                reached = np.cumsum((share * power[:, top] - 1.0) * discount, axis=1)
                total[name] += (reached / most).sum(axis=0)
    return {name: value / dataset.manifest.lists for name, value in total.items()}


def constants(dataset: Dataset, models: Models) -> dict[str, Any]:
    """NDCG@1, 5 and 10 by user, by the constant that stands for what is not rated."""
    rankings = {name: _ranking(dataset, model, given) for name, (model, given) in models.items()}
    metrics = ("ndcg@1", "ndcg@5", "ndcg@10")
    found = [evaluate_users(rankings, dataset, fit_completion(value, dataset), metrics).values for value in CONSTANTS]
    users = {name: [value[name].T.round(DIGITS).tolist() for value in found] for name in rankings}
    return {"values": list(CONSTANTS), "metrics": metrics, "users": users}


def ends(dataset: Dataset, models: Models, count: int) -> dict[str, Any]:
    """The first and last items of rankings, with support; of a ranking with variances, all variances."""
    shown, found, variance = Shown(support=True, titles=dataset.titles is not None), {}, {}
    for name, (model, given) in models.items():
        ranking = _ranking(dataset, model, given, shown)
        title = "title" if "title" in ranking.column_names else "item"
        rows = ranking.select(["rank", title, "experts", "won", "lost"]).rename_columns({title: "title"}).to_pylist()
        found[name] = {"top": rows[:count], "bottom": rows[-count:]}
        if given.get("variance"):
            names = ranking[title].to_pylist()
            variance = {"title": names} | {key: ranking[key].to_pylist() for key in ("rank", "experts", "uncertainty")}
    return {"ends": found, "variance": variance}
