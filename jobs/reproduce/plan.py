"""What is wanted of a run, and the experiments that rows of tables stand for."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from distagg.reports.paper_page import Figures, Finding, Row
from distagg.types import Floats
from jobs.reproduce.experiments import DRAWS, PERSISTENCE, Experiment
from jobs.reproduce.letter import paper_model
from jobs.reproduce.rules import RULES

HERE = Path(__file__).parent
PAPERS: dict[str, Any] = tomllib.loads((HERE / "papers.toml").read_text(encoding="utf-8"))
REASONS: dict[str, Any] = tomllib.loads((HERE / "reasons.toml").read_text(encoding="utf-8"))
AUTHORS = {  # of the papers, in the order of the index
    "volkovs2014": "Volkovs & Zemel 2014",
    "volkovs2013": "Volkovs & Zemel 2013",
    "volkovs2012": "Volkovs & Zemel 2012",
    "niu2013": "Niu et al. 2013",
}
TITLES = {"mq2008": "MQ2008-agg", "mq2007": "MQ2007-agg", "movielens": "MovieLens 100K"}
FEATURES: dict[str, dict[str, Any]] = {"borda": {}, "svd": {}, "cp": {"rank": 2}}
OBJECTIVES = {"ndcg": "ndcg@10", "err": "err", "rbp": "rbp"}  # and the metric that measures it
LISTED = {"unlisted": "ignore"}  # pairs of listed items alone, as the papers have it
PAPER_RULES = {"contest": "paper", "unlisted": "average"}
STEPS = {"solver": "gradient", "prior": "none", "steps": 100}  # all that the papers take, from scores of 0
VARIANCES = {**LISTED, "pairs": "difference", "variance": True, "solver": "gradient", "steps": 100, "rate": 1.0}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {  # rows that are not a model with its defaults
    "mclk": ("mc4", {"local_kemeny": True}),
    "cps, theta=learn": ("cps", {"theta": "learn"}),
    "condorcet, listed only": ("condorcet", LISTED),
    "svp, listed only": ("svp", {**LISTED, "pairs": "difference", "joint": "sum"}),
    "bradley_terry, listed only": ("bradley_terry", LISTED),
    "plackett_luce, listed only": ("plackett_luce", LISTED),
    "bradley_terry, as the paper": ("bradley_terry", {**LISTED, **STEPS, "pairs": "difference"}),
    "plackett_luce, as the paper": ("plackett_luce", {**LISTED, **STEPS, "rate": 6e-4}),
    "borda, as the paper": ("borda", {"discount": False, "unlisted": "average"}),
    "cps, as the paper": ("cps", {"theta": "learn"}),
    "condorcet, as the paper": ("net_wins", {}),
    "svp, as the paper": ("projection", {}),
    "theta_mpm, as the paper": ("theta_mpm", VARIANCES),
    "theta_sup_mpm, as the paper": ("count_adherence", VARIANCES),
    "bestinput, as Niu et al.": ("bestinput", {}),
    "borda, as Niu et al.": ("points", {}),
    "mclk, as Niu et al.": ("mc4", {"local_kemeny": True}),
    "mpm, as Niu et al.": ("mpm", VARIANCES),
    "rrf, as Niu et al.": ("rrf", {}),
    "svp, as Niu et al.": ("points", {}),  # with unlisted items at place n + 1 every pair is observed: the Borda count
    "theta_mpm, listed only": ("theta_mpm", {**LISTED, "pairs": "difference"}),
    "theta_sup_mpm, listed only": ("theta_sup_mpm", {**LISTED, "pairs": "difference"}),
    "crf, as the paper": ("crf", {"mode": "serial", "reciprocal": 0, "rate": 1.0, "rounds": 300, "keep": "last"}),
    "crf, consensus": ("crf", {"sharing": "consensus"}),
    "lambdarank, as the paper": (
        "plain_svd",
        {"mode": "serial", "rate": 0.003, "rounds": 200, "patience": 200, "pool": 0},
    ),
    "lambdarank, combined": ("lambdarank", {"experts": "combined"}),
    "stagg_bc, paper's rules": ("stagg_bc", PAPER_RULES),
    "stagg_rrf, paper's rules": ("stagg_rrf", {**PAPER_RULES, "c": "auto"}),
} | {
    f"{model} {kind} {objective}": (model, {"features": kind, "objective": objective, "mode": "average", **given})
    for model in ("stagg", "rankagg")
    for kind, given in FEATURES.items()
    for objective in OBJECTIVES
}
BY_DATA: dict[str, dict[str, dict[str, Any]]] = {  # settings of a row that differ between datasets
    "bradley_terry, as the paper": {"mq2008": {"rate": 3e-6}, "mq2007": {"rate": 1e-7}},
    "mpm, as Niu et al.": {"mq2007": {"solver": "lbfgs", "steps": 500}},
    "rrf, as Niu et al.": {"mq2008": {"c": 10}, "mq2007": {"c": 40}},
    "svp, as the paper": {"mq2007": {"places": True}},
}
BACKWARDS = frozenset(  # rows whose published figures come out of lists that are read from their last item
    [
        "borda, as the paper",
        "cps, as the paper",
        *(f"{row}, as Niu et al." for row in ("bestinput", "borda", "mclk", "rrf", "svp")),
    ]
)
ALONE = frozenset(["theta_sup_mpm, as the paper"])  # rows that learn from training queries alone
BLIND: set[str] = set()  # rows that are judged on validation queries which chose nothing
STOP = {  # the validation metric that a row is stopped by, where it is not the usual one
    "lambdarank, as the paper": "ndcg@10",
} | {  # stochastic aggregation: what it is trained for
    f"{model} {kind} {objective}": f"rbp({PERSISTENCE})" if metric == "rbp" else metric
    for model in ("stagg", "rankagg")
    for kind in FEATURES
    for objective, metric in OBJECTIVES.items()
}
PROCEDURES: dict[str, dict[str, str]] = {  # table of papers.toml -> row -> the row with the paper's procedure
    "letor": {
        **{row: f"{row}, as the paper" for row in ("borda", "cps", "svp", "condorcet", "bradley_terry")},
        **{row: f"{row}, as the paper" for row in ("plackett_luce", "theta_mpm", "theta_sup_mpm", "lambdarank", "crf")},
    },
    "lists": {
        "plackett_luce": "plackett_luce, listed only",
        "stagg_bc": "stagg_bc, paper's rules",
        "stagg_rrf": "stagg_rrf, paper's rules",
        **{row: f"{row}, as Niu et al." for row in ("bestinput", "borda", "mclk", "mpm", "rrf", "svp")},
    },
}
SECONDS = {
    "blend": 200.0,
    "lambdamart": 14.0,
    "thurstone": 8.0,
    "theta_mpm": 8.0,
    "lambdarank": 9.0,
    "plain_svd": 9.0,
    "stagg": 8.0,
}
LARGER = {"mq2008": 1.0, "mq2007": 3.0, "movielens": 1.0}


@dataclass(frozen=True)
class Plan:
    """Which datasets there are, how many seeds, draws of experts and repeats of what is timed."""

    data: tuple[str, ...]
    seeds: int = 1
    draws: int = DRAWS
    repeats: int = 5

    @property
    def letor(self) -> list[str]:
        return [name for name in ("mq2008", "mq2007") if name in self.data]


Found = Callable[[Experiment], dict[str, Any]]


@dataclass(frozen=True)
class Item:
    """A table or figure: what it needs measured, how it is drawn, where it is printed again."""

    name: str
    title: str
    data: tuple[str, ...]  # any of these will do
    needs: Callable[[Plan], list[Experiment]]
    draw: Callable[[Plan, Found], Finding]
    again: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """A row on one dataset: means in percent with their deviation over seeds, and every query's mean over seeds."""

    means: Mapping[str, float]
    spread: Mapping[str, float]
    queries: Mapping[str, Floats]

    def row(
        self,
        name: str,
        metrics: Sequence[str],
        paper: Sequence[float] = (),
        reason: str = "",
        again: Measured | None = None,
    ) -> Row:
        spread = [self.spread[m] for m in metrics] if self.spread else []
        by_paper = [again.means[m] for m in metrics] if again is not None else []
        return Row(name, [self.means[m] for m in metrics], paper, spread, reason, by_paper)


def row_experiments(plan: Plan, data: str, row: str) -> list[Experiment]:
    """A row's experiments: one, or one for each seed where the model draws."""
    model, settings = ROWS.get(row, (row, {}))
    settings = {**settings, **BY_DATA.get(row, {}).get(data, {})}
    more: dict[str, Any] = {"backwards": True} if row in BACKWARDS else {}
    if model in RULES:
        given = {"rule": model, **settings, **more}
        return [Experiment(_told(data, model, settings | more), "rule_row", data, given, LARGER[data])]
    more |= {"stop": STOP[row]} if row in STOP else {}
    more |= {"blind": True} if row in BLIND else {}
    more |= {"alone": True} if row in ALONE else {}
    seeded = plan.seeds if hasattr(paper_model(model), "seed") else 1
    cost = LARGER[data] * SECONDS.get(model, 2.5)
    name = _told(data, model, settings | more)
    return [
        Experiment(
            name + (f" seed={seed}" if seed else ""),
            "model_row",
            data,
            {"model": model, "settings": {**settings, **({"seed": seed} if seed else {})}, **more},
            cost,
        )
        for seed in range(seeded)
    ]


def _told(data: str, model: str, settings: Mapping[str, Any]) -> str:
    """An experiment's name, by what is run and not by the row: the same rows of several tables are measured once."""
    return " ".join([data, model, *(f"{key}={value}" for key, value in sorted(settings.items()))])


def able(rows: Sequence[str]) -> list[str]:
    """Those whose models' packages are installed."""
    models = {row: ROWS.get(row, (row, {}))[0] for row in rows}
    packages = {row: "" if model in RULES else paper_model(model).package for row, model in models.items()}
    return [row for row, package in packages.items() if not package or find_spec(package)]


def rows_experiments(plan: Plan, rows: Sequence[str], data: Sequence[str] | None = None) -> list[Experiment]:
    return [
        one
        for name in (plan.letor if data is None else data)
        for row in rows
        for one in row_experiments(plan, name, row)
    ]


def measured(plan: Plan, found: Found, data: str, row: str) -> Measured:
    runs = [found(one) for one in row_experiments(plan, data, row)]
    means = {m: [100.0 * run["means"][m] for run in runs] for m in runs[0]["means"]}
    return Measured(
        {m: float(np.mean(values)) for m, values in means.items()},
        {m: float(np.std(values, ddof=1)) for m, values in means.items()} if len(runs) > 1 else {},
        {m: np.mean([run["queries"][m] for run in runs], axis=0) for m in means},
    )


def beside(
    title: str,
    columns: Sequence[str],
    rows: Mapping[str, Measured],
    note: str,
    paper: Mapping[str, Sequence[float]] | None = None,
    reasons: Mapping[str, str] | None = None,
    procedures: Mapping[str, str] | None = None,
) -> Figures:
    """Rows beside the paper's, with the reasons that are known; those that the paper has not stand last.

    ``procedures`` names, of ``rows``, those with the paper's procedure.
    """
    by_paper = {name: rows[other] for name, other in (procedures or {}).items() if other in rows}
    made = [
        one.row(name, columns, (paper or {}).get(name, ()), (reasons or {}).get(name, ""), by_paper.get(name))
        for name, one in rows.items()
        if name not in (procedures or {}).values()
    ]
    return Figures(title, columns, sorted(made, key=lambda row: not row.paper), note)


def order_of(name: str) -> int:
    """The place of an item's paper in the index; items of no paper stand last."""
    paper = name.partition("-")[0]
    return list(AUTHORS).index(paper) if paper in AUTHORS else len(AUTHORS)


def spoken(name: str) -> str:
    """An item's name in words.

    >>> spoken("volkovs2014-table1")
    'Volkovs & Zemel 2014, Table 1'
    """
    paper, _, what = name.partition("-")
    kind = what.rstrip("0123456789")
    return f"{AUTHORS[paper]}, {kind.title()} {what.removeprefix(kind)}" if what else name
