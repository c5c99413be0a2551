"""Which weights of trained models are kept.

The CRF by the paper's procedure, the last weights of 300 passes (Volkovs & Zemel 2014), or the best round's; and the
default of ``keep`` for every trained model, judged on validation queries alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distagg.reports.paper_page import Claim, Finding, above
from jobs.reproduce.experiments import LETOR
from jobs.reproduce.letor import PROTOCOL
from jobs.reproduce.plan import (
    BLIND,
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

TRAINED = ("crf", "lambdarank", "stagg")
LAST, EARLY = "crf, as the paper", "crf, as the paper but the best round"
ROWS[EARLY] = ("crf", {"mode": "serial", "reciprocal": 0, "rate": 1.0, "keep": "best"})
KEPT = {model: tuple(f"{model}, keep={keep}" for keep in ("best", "last", "mean")) for model in TRAINED}
for model, rows in KEPT.items():
    ROWS.update({row: (model, {"keep": row.rpartition("=")[2]}) for row in rows})
    BLIND.update(rows)
COLUMNS = (*LETOR[:5], "map")
NOTE = (
    "As the paper: its potentials (reciprocal=0, rate=1), 300 passes through all queries in turn (mode=serial), the "
    "weights of the last one (keep=last). The best round has the best MAP on the validation queries (patience=20)."
)
NOTE_KEPT = (
    "Two training parts of each fold teach, the third chooses the round of keep=best, the validation part judges; no "
    "test query is seen. Defaults otherwise: 100 rounds of crf, 200 of the others; the mean is over their second half."
)


def weights(plan: Plan, found: Found, data: str, compared: Sequence[str]) -> tuple[dict[str, Measured], list[Claim]]:
    """Rows that keep different weights, and claims that the others are above the first."""
    rows = {row: measured(plan, found, data, row) for row in compared}
    first, *others = compared
    claims = []
    for row in others:
        pairs = {metric: (rows[row].queries[metric], rows[first].queries[metric]) for metric in COLUMNS}
        claims.append(above(f"{TITLES[data]}: {row} is above {first}", pairs))
    return rows, claims


def procedures(plan: Plan, found: Found) -> Finding:
    tables, claims = [], []
    for data in plan.letor:
        rows, told = weights(plan, found, data, (EARLY, LAST))
        printed = PAPERS["letor"][data]["crf"]
        paper = {LAST: [printed[LETOR.index(metric)] for metric in COLUMNS]}
        tables.append(replace(beside(TITLES[data], COLUMNS, rows, NOTE, paper), judged=False))
        claims += told
    return Finding(PROCEDURES_TITLE, PROTOCOL, tables, claims)


def kept(plan: Plan, found: Found) -> Finding:
    tables, claims = [], []
    for data in plan.letor:
        by_model = {model: weights(plan, found, data, rows) for model, rows in KEPT.items()}
        rows = {name: row for of_model, _ in by_model.values() for name, row in of_model.items()}
        tables.append(replace(beside(TITLES[data], COLUMNS, rows, NOTE_KEPT), judged=False))
        claims += [claim for _, told in by_model.values() for claim in told]
    return Finding(KEPT_TITLE, PROTOCOL, tables, claims)


PROCEDURES_TITLE = "The CRF by the paper's procedure, and stopped early"
KEPT_TITLE = "Which weights trained models keep, judged on validation queries"
BOTH = ("mq2008", "mq2007")
ITEMS = [
    Item("procedures", PROCEDURES_TITLE, BOTH, lambda plan: rows_experiments(plan, (LAST, EARLY)), procedures),
    Item("kept", KEPT_TITLE, BOTH, lambda plan: rows_experiments(plan, sum(KEPT.values(), ())), kept),
]
