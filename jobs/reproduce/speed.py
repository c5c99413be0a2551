"""Time to rank a query as experts or items are repeated, CRF beside SVD features.

Volkovs & Zemel 2014, figure 10 (2013, figure 2).
"""

from __future__ import annotations

import statistics

import numpy as np

from distagg.reports.curves import Axis, lines
from distagg.reports.html import figure, figures, section, table
from distagg.reports.paper_page import Claim, Finding
from jobs.reproduce.experiments import Experiment
from jobs.reproduce.plan import PAPERS, Found, Item, Plan

HEAD = ["repeated", "model", "once, us a query", "ten times", "grows as size to the"]


def experiment(plan: Plan) -> Experiment:
    return Experiment("mq2008 ranking time", "ranking_time", "mq2008", {"repeats": plan.repeats}, 60.0, alone=True)


def growth(times: list[int], runs: list[list[float]]) -> float:
    """The exponent of a power of the size, by least squares on logarithms."""
    return float(np.polyfit(np.log(times), np.log([statistics.median(run) for run in runs]), 1)[0])


def draw(plan: Plan, found: Found) -> Finding:
    result = found(experiment(plan))
    rows, drawn, claims = [], [], []
    for axis, by_model in result["microseconds"].items():
        for name, runs in by_model.items():
            ends = (f"{statistics.median(run):.1f} ({min(run):.1f} to {max(run):.1f})" for run in (runs[0], runs[-1]))
            rows.append([axis, name, *ends, f"{growth(result['times'], runs):.2f}"])
        medians = {name: [statistics.median(run) for run in runs] for name, runs in by_model.items()}
        ratio = [slow / fast for fast, slow in zip(medians["crf"], medians["lambdarank"], strict=True)]
        rows.append(
            [
                axis,
                "ratio",
                f"{ratio[0]:.1f}",
                f"{ratio[-1]:.1f} (paper {PAPERS['slower'][axis]:g})",
                f"most {max(ratio):.1f}",
            ]
        )
        paper, reached = PAPERS["slower"][axis], f"{ratio[-1]:.1f} times as slow at ten times the {axis}"
        claims += [
            Claim(f"the CRF is faster as {axis} are repeated", sum(r > 1.0 for r in ratio), len(ratio), reached),
            Claim(
                f"SVDsup is {paper:g} or more times as slow at ten times the {axis}",
                int(ratio[-1] >= paper),
                1,
                reached,
            ),
        ]
        points = {name: list(zip(result["times"], values, strict=True)) for name, values in medians.items()}
        picture = lines(points, x=Axis("times"), y=Axis("microseconds a query", log=True), title=f"time against {axis}")
        drawn.append(figure(f"{axis} repeated", picture))
    return Finding(
        "Volkovs & Zemel 2014, Figure 10: time to rank a query",
        f"{result['queries']} test queries of fold 1 of MQ2008-agg; time of the processor, median of {plan.repeats} "
        "(least to most).",
        claims=claims,
        pictures=[
            section("As the paper draws it", figures(drawn)),
            section("Figures", table(HEAD, rows, label="Times", left=(0, 1))),
        ],
        note="The paper's ratio is of MATLAB, which makes an SVD for every expert; ours takes it from sorted lists.",
    )


ITEMS = [
    Item(
        "volkovs2014-figure10",
        "Figure 10: time to rank a query",
        ("mq2008",),
        lambda plan: [experiment(plan)],
        draw,
        ("Volkovs & Zemel 2013, Figure 2",),
    )
]
