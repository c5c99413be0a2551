"""Tables of models on MQ2008-agg and MQ2007-agg.

Volkovs & Zemel 2014, Tables 1, 4 and 5; 2013, Table 2; 2012, Table 1; Niu et al. 2013, Table 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distagg.reports.paper_page import Claim, Finding, above, level
from jobs.reproduce.experiments import LETOR, Experiment
from jobs.reproduce.plan import (
    AUTHORS,
    PAPERS,
    PROCEDURES,
    REASONS,
    TITLES,
    Found,
    Item,
    Measured,
    Plan,
    able,
    beside,
    measured,
    rows_experiments,
)

BASELINES = ("borda", "cps", "svp", "condorcet", "bradley_terry", "plackett_luce")
PROTOCOL = "Five folds, LETOR 4.0 evaluation, percent; the same folds and queries for every model."
LISTED_ONLY = (
    "As the paper: pairs of two items that an expert lists (unlisted=ignore); by default an item that a list leaves "
    "out stands behind those in it. bradley_terry, plackett_luce and the MPM take 100 plain gradient steps from 0 "
    "(solver=gradient), of a length that the papers do not tell, the MPM with variances. Adherence of theta_sup_mpm is "
    "the share of an expert's rank differences, not of its pairs, on the labels' side. borda and cps, whose figures "
    "are those of the LETOR website, read every list from its last item: so borda gives them to the last digit. "
    "condorcet is wins less losses, majorities by summed rank differences, which gives them to the last digit too; svp "
    "makes one step, on MQ2007 with places in lists for ranks, which is not what MQ2008 asks for."
)
CRF_AS_THE_PAPER = (
    "crf, as the paper: without our potential c / (c + rank), 300 passes, the last weights; the energy divides pair "
    "sums by the number of items and the bias by nothing, and sums are those of whole queries (the paper's equation 4 "
    "and Algorithm 2 differ, and give less). lambdarank: singular vectors of length 1, one walk through the queries in "
    "each of 200 rounds, of which NDCG@10 on the validation queries chooses the best; the rate is 0.003 (paper: 0.01)."
)
THEIRS = PROCEDURES["letor"]


@dataclass(frozen=True)
class Says:
    """``first`` is above the best of ``others`` by our means, metric by metric; or ``beside`` it: not below."""

    text: str
    first: str
    others: tuple[str, ...]
    beside: bool = False


@dataclass(frozen=True)
class Letor:
    title: str
    rows: tuple[str, ...]  # as the paper orders them
    says: tuple[Says, ...]
    more: tuple[str, ...] = ()  # ours alone
    columns: tuple[str, ...] = LETOR
    paper: str = "letor"
    note: str = LISTED_ONLY
    again: tuple[str, ...] = ()


TABLES = {
    "volkovs2014-table1": Letor(
        "Table 1: models that need no labels",
        (*BASELINES, "theta_mpm"),
        (
            Says("theta-MPM is significantly above the best other model", "theta_mpm", BASELINES),
            Says("the same, as the paper", THEIRS["theta_mpm"], tuple(THEIRS[row] for row in BASELINES)),
        ),
        ("cps, theta=learn", *(f"{row}, listed only" for row in ("bradley_terry", "plackett_luce", "theta_mpm"))),
    ),
    "volkovs2014-table4": Letor(
        "Table 4: MPM without and with labels",
        ("theta_mpm", "theta_sup_mpm"),
        (
            Says("adherence set from labels is significantly better than learned", "theta_sup_mpm", ("theta_mpm",)),
            Says("the same, as the paper", THEIRS["theta_sup_mpm"], (THEIRS["theta_mpm"],)),
        ),
        ("theta_mpm, listed only", "theta_sup_mpm, listed only"),
        note=LISTED_ONLY + " The paper's NDCG@5 of theta-MPM on MQ2007 is 41.53 in Table 1, 42.53 in Table 4.",
    ),
    "volkovs2014-table5": Letor(
        "Table 5: models that learn from labels, and all others",
        (*BASELINES, "rrf", "theta_sup_mpm", "lambdarank", "crf"),
        (
            Says("SVDsup is significantly above the best baseline", "lambdarank", (*BASELINES, "rrf", "theta_sup_mpm")),
            Says("CRF is significantly above the best baseline", "crf", (*BASELINES, "rrf", "theta_sup_mpm")),
            Says("CRF produces results similar to SVDsup", "crf", ("lambdarank",), beside=True),
        ),
        ("cps, theta=learn", "lambdamart", "blend"),
        note=LISTED_ONLY + " " + CRF_AS_THE_PAPER + " lambdamart and blend are in no paper.",
    ),
    "volkovs2013-table2": Letor(
        "Table 2: the CRF beside others",
        ("cps", "svp", "plackett_luce", "condorcet", "rrf", "lambdarank", "crf"),
        (
            Says(
                "CRF is significantly above every baseline but SVDsup",
                "crf",
                ("cps", "svp", "plackett_luce", "condorcet", "rrf"),
            ),
            Says("CRF produces results similar to SVDsup", "crf", ("lambdarank",), beside=True),
        ),
        ("cps, theta=learn",),
        note=LISTED_ONLY + " " + CRF_AS_THE_PAPER,
    ),
    "volkovs2012-table1": Letor(
        "Table 1: theta-MPM with labels beside models without",
        ("borda", "cps", "svp", "bradley_terry", "plackett_luce", "theta_sup_mpm"),
        (
            Says(
                "theta-MPM is significantly above the best other model",
                "theta_sup_mpm",
                ("borda", "cps", "svp", "bradley_terry", "plackett_luce"),
            ),
            Says(
                "the same, as the paper",
                THEIRS["theta_sup_mpm"],
                tuple(THEIRS[row] for row in ("borda", "cps", "svp", "bradley_terry", "plackett_luce")),
            ),
        ),
        ("theta_sup_mpm, listed only",),
    ),
    "niu2013-table1": Letor(
        "Table 1: stochastic aggregation without labels",
        ("bestinput", "mclk", "svp", "plackett_luce", "mpm", "borda", "rrf", "stagg_bc", "stagg_rrf"),
        (
            Says("St.Agg BC is significantly above Borda count", "stagg_bc", ("borda",)),
            Says("St.Agg RRF is significantly above RRF", "stagg_rrf", ("rrf",)),
            Says("St.Agg BC is significantly above MPM", "stagg_bc", ("mpm",)),
            Says("St.Agg RRF is significantly above MPM", "stagg_rrf", ("mpm",)),
        ),
        (),
        ("ndcg@5", "ndcg@10", "err", "rbp"),
        "lists",
        "RBP with the label itself as the gain, persistence 0.95. As the paper: bestinput, mclk, svp, borda and rrf "
        "read every list from its last item, which gives the figures of bestinput and borda; svp has unlisted items at "
        "place n + 1, so that its matrix is complete and of rank 2, and it is the Borda count; rrf has the paper's c; "
        "mpm has variances and takes 100 gradient steps on listed items, plackett_luce converges on them. stagg_bc and "
        "stagg_rrf: of two items the nearer ones are the surer (equation 11), items that a list leaves out are "
        "average, c is chosen on validation queries.",
    ),
}


def claim(says: Says, columns: Sequence[str], rows: dict[str, dict[str, Measured]]) -> Claim:
    """The paper's claim on our figures, by dataset and metric."""
    pairs = {}
    for data, found in rows.items():
        for metric in columns:
            best = max(says.others, key=lambda name: found[name].means[metric])
            against = f" over {best}" if len(says.others) > 1 else ""
            pairs[f"{TITLES[data]} {metric}{against}"] = (
                found[says.first].queries[metric],
                found[best].queries[metric],
            )
    return (level if says.beside else above)(says.text, pairs)


def item(name: str, table: Letor) -> Item:
    procedures = {row: other for row, other in PROCEDURES[table.paper].items() if row in table.rows}
    wanted = (*table.rows, *procedures.values(), *table.more)

    def needs(plan: Plan) -> list[Experiment]:
        return rows_experiments(plan, able(wanted))

    def draw(plan: Plan, found: Found) -> Finding:
        rows = {data: {row: measured(plan, found, data, row) for row in able(wanted)} for data in plan.letor}
        tables = []
        for data, by_row in rows.items():
            paper = {row: PAPERS[table.paper][data][row] for row in table.rows}
            reasons = REASONS.get(table.paper, {}).get(data, {})
            tables.append(beside(TITLES[data], table.columns, by_row, table.note, paper, reasons, procedures))
        return Finding(
            f"{AUTHORS[name.partition('-')[0]]}, {table.title}",
            PROTOCOL,
            tables,
            [claim(says, table.columns, rows) for says in table.says],
        )

    return Item(name, table.title, ("mq2008", "mq2007"), needs, draw, table.again)


ITEMS = [item(name, table) for name, table in TABLES.items()]
