"""The CRF's procedure: the last weights of 300 passes, as Volkovs & Zemel 2014 keep them, or the best round's."""

from __future__ import annotations

from dataclasses import replace

from distagg.reports.paper_page import Finding, above
from jobs.reproduce.experiments import LETOR, Experiment
from jobs.reproduce.letor import PROTOCOL
from jobs.reproduce.plan import PAPERS, ROWS, TITLES, Found, Item, Plan, beside, measured, rows_experiments

LAST, EARLY = "crf, as the paper", "crf, as the paper but the best round"
OURS, OURS_LAST, OURS_MEAN = "crf", "crf, last weights", "crf, mean weights"
ROWS[EARLY] = ("crf", {"reciprocal": 0, "rate": 1.0, "keep": "best"})
ROWS[OURS_LAST] = ("crf", {"keep": "last", "rounds": 300})
ROWS[OURS_MEAN] = ("crf", {"keep": "mean", "rounds": 300})
COMPARED = (LAST, EARLY, OURS, OURS_LAST, OURS_MEAN)
NOTE = (
    "As the paper: its potentials (reciprocal=0, rate=1), 300 passes, the weights of the last one (keep=last). The "
    "best round has the best MAP on the validation queries (patience=20). The other rows have our potentials."
)


def needs(plan: Plan) -> list[Experiment]:
    return rows_experiments(plan, COMPARED)


def draw(plan: Plan, found: Found) -> Finding:
    tables, claims = [], []
    for data in plan.letor:
        rows = {row: measured(plan, found, data, row) for row in COMPARED}
        printed = {LAST: PAPERS["letor"][data]["crf"]}
        tables.append(replace(beside(TITLES[data], LETOR, rows, NOTE, printed), judged=False))
        for text, first, second in (
            ("the paper's potentials: the last weights are above the best round's", LAST, EARLY),
            ("our potentials: the last weights are above the best round's", OURS_LAST, OURS),
            ("our potentials: the mean of the weights is above the best round's", OURS_MEAN, OURS),
        ):
            pairs = {m: (rows[first].queries[m], rows[second].queries[m]) for m in (*LETOR[:5], "map")}
            claims.append(above(f"{TITLES[data]}, {text}", pairs))
    return Finding("Which weights of the CRF are kept", PROTOCOL, tables, claims)


ITEMS = [Item("procedures", "Which weights of the CRF are kept", ("mq2008", "mq2007"), needs, draw)]
