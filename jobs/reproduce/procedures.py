"""The CRF's procedure: the last weights of 300 passes, as Volkovs & Zemel 2014 keep them, or the best round's."""

from __future__ import annotations

from collections.abc import Sequence
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
PAPERS_OWN = (LAST, EARLY)
OURS_ALL = (OURS, OURS_LAST, OURS_MEAN)
COLUMNS = (*LETOR[:5], "map")
NOTE = (
    "As the paper: its potentials (reciprocal=0, rate=1), 300 passes, the weights of the last one (keep=last). The "
    "best round has the best MAP on the validation queries (patience=20)."
)
NOTE_OURS = "With our potential c / (c + rank): the best round, the last of 300, the mean of the last 150."


def page(name: str, title: str, compared: Sequence[str], kept: str, note: str) -> Item:
    """The weights of several rounds beside those that are ``kept`` otherwise."""

    def needs(plan: Plan) -> list[Experiment]:
        return rows_experiments(plan, compared)

    def draw(plan: Plan, found: Found) -> Finding:
        tables, claims = [], []
        for data in plan.letor:
            rows = {row: measured(plan, found, data, row) for row in compared}
            printed = PAPERS["letor"][data]["crf"]
            paper = {LAST: [printed[LETOR.index(metric)] for metric in COLUMNS]}
            tables.append(replace(beside(TITLES[data], COLUMNS, rows, note, paper), judged=False))
            for row in (row for row in compared if row != kept):
                pairs = {metric: (rows[row].queries[metric], rows[kept].queries[metric]) for metric in COLUMNS}
                claims.append(above(f"{TITLES[data]}: {row} is above {kept}", pairs))
        return Finding(title, PROTOCOL, tables, claims)

    return Item(name, title, ("mq2008", "mq2007"), needs, draw)


ITEMS = [
    page("procedures", "The CRF by the paper's procedure, and stopped early", PAPERS_OWN, EARLY, NOTE),
    page("kept", "Which weights of our CRF are kept", OURS_ALL, OURS, NOTE_OURS),
]
