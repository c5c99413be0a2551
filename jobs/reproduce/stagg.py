"""The pictures of Niu et al. 2013: explicit and implicit models, with labels, with some of the experts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from distagg.reports.curves import Axis, lines
from distagg.reports.html import figure, figures, section, table
from distagg.reports.paper_page import Claim, Finding, above
from jobs.reproduce.column_chart import columns
from jobs.reproduce.experiments import Experiment
from jobs.reproduce.letor import PROTOCOL
from jobs.reproduce.plan import (
    FEATURES,
    LARGER,
    OBJECTIVES,
    PAPER_RULES,
    PAPERS,
    ROWS,
    TITLES,
    Found,
    Item,
    Measured,
    Plan,
    beside,
    measured,
    rows_experiments,
)

UNSUPERVISED = {"explicit": ("bestinput", "borda", "rrf"), "implicit": ("svp", "plackett_luce", "mpm")}
IMPLICIT = ("cps, theta=learn", "theta_sup_mpm")
EXPLICIT = tuple(f"rankagg borda {objective}" for objective in OBJECTIVES)
FOUR = ("ndcg@5", "ndcg@10", "err", "rbp")
PICTURE = "The paper's figures are in a picture."
ROBUST = ("mc4", "svp", "plackett_luce", "mpm", "borda", "rrf", "stagg_bc", "stagg_rrf")


CONVENTIONS: dict[str, dict[str, Any]] = {  # of the paper, for models that learn nothing
    "mc4": {"local_kemeny": True},
    "svp": ROWS["svp, as Niu et al."][1],
    "plackett_luce": ROWS["plackett_luce, listed only"][1],
    "mpm": ROWS["mpm, as Niu et al."][1],
    "borda": {"discount": False},
    "rrf": {},
    "stagg_bc": PAPER_RULES,
    "stagg_rrf": PAPER_RULES,
}
TURNED = ("mc4", "svp", "borda", "rrf")  # whose lists are read from their last item
CONVENTIONS_NOTE = (
    "As the paper: mc4 (MCLK), svp, borda and rrf read every list from its last item; mpm and plackett_luce compare "
    "listed items only, mpm with variances and 100 gradient steps; stagg has the paper's contests, and unlisted items "
    "are average."
)


def _rows(plan: Plan, found: Found, data: str, names: tuple[str, ...]) -> dict[str, Measured]:
    return {name: measured(plan, found, data, name) for name in names}


# Figure 1.

FIGURE1 = (*UNSUPERVISED["explicit"], *UNSUPERVISED["implicit"], *IMPLICIT, *EXPLICIT)


def figure1(plan: Plan, found: Found) -> Finding:
    tables, drawn, without, labelled = [], [], {}, {}
    for data in plan.letor:
        rows = _rows(plan, found, data, FIGURE1)
        tables.append(beside(TITLES[data], FOUR, rows, PICTURE))
        for metric in FOUR:
            values = {name: [rows[name].means[metric]] for kind in UNSUPERVISED.values() for name in kind}
            drawn.append(
                figure(f"{TITLES[data]}, {metric}", columns([metric], values, title=f"{TITLES[data]}, {metric}"))
            )
            best = max(("borda", "rrf"), key=lambda name: rows[name].means[metric])
            for name in UNSUPERVISED["implicit"]:
                without[f"{TITLES[data]} {metric}, {name} over {best}"] = (
                    rows[name].queries[metric],
                    rows[best].queries[metric],
                )
        for objective, metric in OBJECTIVES.items():
            plain = rows[f"rankagg borda {objective}"].queries[metric]
            for name in IMPLICIT:
                labelled[f"{TITLES[data]} {metric}, {name}"] = (rows[name].queries[metric], plain)
    return Finding(
        "Niu et al. 2013, Figure 1: explicit and implicit models",
        PROTOCOL,
        tables,
        [
            above("without labels, implicit models are above the best explicit one", without),
            above("with labels, implicit models are above RankAgg with Borda features", labelled),
        ],
        [section("Without labels, as the paper draws it", figures(drawn), note="Axes do not start at 0.")],
    )


# Figures 2 and 3: one for each dataset.

SUPERVISED = (*IMPLICIT, *(f"{m} {kind} {o}" for m in ("rankagg", "stagg") for kind in FEATURES for o in OBJECTIVES))


def supervised(data: str, plan: Plan, found: Found) -> Finding:
    name = "niu2013-figure2" if data == "mq2007" else "niu2013-figure3"
    rows = _rows(plan, found, data, SUPERVISED)
    drawn, over, implicit, best, gains = [], {}, {}, {}, []
    favourite = "svd" if data == "mq2007" else "cp"
    for at, (objective, metric) in enumerate(OBJECTIVES.items()):
        series = {
            model: [rows[f"{model} {kind} {objective}"].means[metric] for kind in FEATURES]
            for model in ("rankagg", "stagg")
        } | {other: [rows[other].means[metric]] * len(FEATURES) for other in IMPLICIT}
        drawn.append(
            figure(
                f"Trained for {objective}: {metric}", columns(list(FEATURES), series, title=f"{TITLES[data]}, {metric}")
            )
        )
        for kind in FEATURES:
            ours = rows[f"stagg {kind} {objective}"]
            over[f"{kind} {metric}"] = (ours.queries[metric], rows[f"rankagg {kind} {objective}"].queries[metric])
            implicit[f"{kind} {metric}"] = (ours.queries[metric], rows["theta_sup_mpm"].queries[metric])
            if kind != favourite:
                best[f"{favourite} over {kind}, {metric}"] = (
                    rows[f"stagg {favourite} {objective}"].queries[metric],
                    ours.queries[metric],
                )
        for other, compared in (("rankagg", f"rankagg svd {objective}"), ("theta_sup_mpm", "theta_sup_mpm")):
            more = 100.0 * (rows[f"stagg svd {objective}"].means[metric] / rows[compared].means[metric] - 1.0)
            said = f"{PAPERS['gains'][other][at]:+.1f}%" if data == "mq2007" else ""
            gains.append([metric, other, said, f"{more:+.1f}%"])
    return Finding(
        f"Niu et al. 2013, Figure {name[-1]}: models that learn from labels, {TITLES[data]}",
        PROTOCOL,
        [beside(TITLES[data], tuple(OBJECTIVES.values()), rows, PICTURE)],
        [
            above("St.Agg is significantly above RankAgg with the same features", over),
            above("St.Agg is significantly above theta-MPM with any features", implicit),
            above(f"{favourite} features are the best of three", best),
        ],
        [
            section("As the paper draws it", figures(drawn), note="Axes do not start at 0."),
            section(
                "SVD features: how much more stagg has",
                table(["metric", "than", "paper", "ours"], gains, label="Gains", left=(0, 1)),
            ),
        ],
    )


# Figure 4: some of the experts.


def robust(plan: Plan, data: str, model: str, as_paper: bool = False) -> Experiment:
    """A model with draws of experts, with our defaults or the paper's conventions."""
    settings: dict[str, Any] = {"model": model, "draws": plan.draws, "seed": 0}
    if as_paper:
        settings |= {"settings": CONVENTIONS[model], "backwards": model in TURNED}
    name = f"{data} robustness {model}" + (" as the paper" if as_paper else "")
    return Experiment(name, "robustness", data, settings, 6.0 * LARGER[data])


def figure4(plan: Plan, found: Found) -> Finding:
    drawn, rows, claims = [], [], []
    for as_paper, kind in ((False, "our defaults"), (True, "as the paper")):
        pairs, spread = {}, []
        for data in plan.letor:
            runs = {model: found(robust(plan, data, model, as_paper))["sizes"] for model in ROBUST}
            sizes = list(runs["borda"])
            means = {model: [(float(size), float(np.mean(by[size]))) for size in sizes] for model, by in runs.items()}
            title = f"{TITLES[data]}, NDCG@5, {kind}"
            drawn.append(figure(title, lines(means, x=Axis("experts"), y=Axis("NDCG@5, percent"), title=title)))
            for model, by in sorted(runs.items(), key=lambda one: -float(np.mean(list(one[1].values())))):
                values = (f"{np.mean(by[s]):.2f} ({np.std(by[s], ddof=1):.2f})" for s in sizes)
                rows.append([kind, TITLES[data], model, *values])
            for size in sizes:
                others = (m for m in ROBUST if not m.startswith("stagg"))
                best = max(others, key=lambda m: float(np.mean(runs[m][size])))
                for model in ("stagg_bc", "stagg_rrf"):
                    what = f"{TITLES[data]}, {size} experts, {model} over {best}"
                    pairs[what] = (0.01 * np.array(runs[model][size]), 0.01 * np.array(runs[best][size]))
            spread += [np.std(by[sizes[0]]) > np.std(by[sizes[-1]]) for by in runs.values()]
        said = f"less with {sizes[-1]} experts than with {sizes[0]} for {sum(spread)} of {len(spread)} models"
        claims += [
            above(f"St.Agg is above all others at every number of experts (tests over draws), {kind}", pairs),
            Claim(f"deviation falls as experts grow in number, {kind}", int(sum(spread)), len(spread), said),
        ]
    heads = ["", "data", "model", *(f"{size} experts" for size in sizes)]
    return Finding(
        "Niu et al. 2013, Figure 4: with some of the experts",
        f"NDCG@5, mean of {plan.draws} draws of experts that all models share; in brackets the deviation over draws.",
        claims=claims,
        pictures=[
            section("As the paper draws it", figures(drawn), note=CONVENTIONS_NOTE),
            section("Figures", table(heads, rows, label="Figures", left=(0, 1, 2))),
        ],
    )


def _robust_needs(plan: Plan) -> list[Experiment]:
    return [robust(plan, data, model, by) for by in (False, True) for data in plan.letor for model in ROBUST]


BOTH = ("mq2008", "mq2007")
ITEMS = [
    Item(
        "niu2013-figure1",
        "Figure 1: explicit and implicit models",
        BOTH,
        lambda plan: rows_experiments(plan, FIGURE1),
        figure1,
    ),
    *(
        Item(
            name,
            f"Figure {name[-1]}: models that learn from labels",
            (data,),
            lambda plan, data=data: rows_experiments(plan, SUPERVISED, [data]),
            partial(supervised, data),
        )
        for name, data in (("niu2013-figure2", "mq2007"), ("niu2013-figure3", "mq2008"))
    ),
    Item("niu2013-figure4", "Figure 4: with some of the experts", BOTH, _robust_needs, figure4),
]
