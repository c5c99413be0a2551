"""What experts are worth.

Volkovs & Zemel 2014, figures 7, 8, 9 and 11 and Table 6 (2013, Table 3 and figure 1; 2012, figure 3).
"""

from __future__ import annotations

import numpy as np
from scipy.stats import spearmanr

from distagg.reports import charts as svg
from distagg.reports.experts_page import hinton_figure, what_experts_said
from distagg.reports.html import figure, figures, section, table
from distagg.reports.paper_page import Claim, Figures, Finding, Row, above, fact, level
from distagg.reports.text import plural
from jobs.reproduce.column_chart import columns
from jobs.reproduce.experiments import LETOR, Experiment
from jobs.reproduce.letor import PROTOCOL
from jobs.reproduce.plan import (
    PAPERS,
    REASONS,
    ROWS,
    TITLES,
    Found,
    Item,
    Plan,
    beside,
    measured,
    row_experiments,
    rows_experiments,
)

PLAIN = ROWS["crf, as the paper"][1]


# Figure 7: adherence of every expert, set from labels and learned without.


def adherence_needs(plan: Plan) -> list[Experiment]:
    return rows_experiments(plan, ("theta_sup_mpm", "theta_mpm"), ["mq2007"])


def adherence(plan: Plan, found: Found) -> Finding:
    runs = {name: found(row_experiments(plan, "mq2007", name)[0]) for name in ("theta_sup_mpm", "theta_mpm")}
    names = runs["theta_mpm"]["experts"]
    rows = {name: run["adherence"] for name, run in runs.items()}
    supervised, learned = (np.array(rows[name]) for name in runs)
    alike = spearmanr(supervised, learned)
    first = {
        f"{names[e]}: {supervised[e]:.2f} from labels, {learned[e]:.2f} learned": bool(
            supervised[e] > 0.5 and learned[e] < 0.5
        )
        for e in range(min(3, len(names)))
    }
    said = f"rank correlation {alike.statistic:+.2f} (p = {alike.pvalue:.3f}) over {plural(len(names), 'expert')}"
    claims = [
        Claim("both vectors are similar", int(alike.statistic > 0 and alike.pvalue < 0.05), 1, said),
        fact("the first three experts are on by labels and off when learned", first),
    ]
    drawn = svg.strips(rows, names, title="Adherence of every expert", desc="Top: from labels. Bottom: learned.")
    note = "Top: set from labels. Bottom: learned without. Dark is 1, pale is 0 (the paper draws 1 white)."
    return Finding(
        "Volkovs & Zemel 2014, Figure 7: adherence of experts",
        "Training queries of fold 1 of MQ2007-agg.",
        claims=claims,
        pictures=[section("As the paper draws it", figures([figure("Adherence", drawn, note=note)]))],
    )


# Figure 8: features and weights for every expert, or for all together.

PARTS = ("lambdarank, combined", "lambdarank", "crf, consensus", "crf", "rrf")


def specialised_needs(plan: Plan) -> list[Experiment]:
    return rows_experiments(plan, PARTS)


def specialised(plan: Plan, found: Found) -> Finding:
    tables, drawn, pairs, crf, same = [], [], {}, {}, {}
    for data in plan.letor:
        rows = {name: measured(plan, found, data, name) for name in PARTS}
        both = {"combined": rows[PARTS[0]], "individual": rows["lambdarank"]}
        tables.append(beside(TITLES[data], LETOR, rows, "The paper's figures are in a picture."))
        for kind in ("ndcg", "p"):
            names = [f"{kind}@{k}" for k in range(1, 6)]
            lines = {name: [one.means[m] for m in names] for name, one in both.items()}
            title = f"{TITLES[data]}, {'NDCG' if kind == 'ndcg' else 'precision'}@1-5"
            drawn.append(figure(title, columns([f"@{k}" for k in range(1, 6)], lines, title=title)))
        for metric in LETOR[:-1]:
            what = f"{TITLES[data]} {metric}"
            pairs[what] = (both["individual"].queries[metric], both["combined"].queries[metric])
            crf[what] = (rows["crf"].queries[metric], rows["crf, consensus"].queries[metric])
            same[what] = (both["combined"].queries[metric], rows["rrf"].queries[metric])
    return Finding(
        "Volkovs & Zemel 2014, Figure 8: every expert for itself, or all together",
        PROTOCOL,
        tables,
        [
            above("SVDsup with features of every expert is significantly above the combined one", pairs),
            above("the CRF with weights for every expert is above the one that shares them", crf),
            level("the combined model is comparable to Reciprocal Rank Fusion", same),
        ],
        [section("As the paper draws it", figures(drawn), note="The axis does not start at 0, as in the paper.")],
    )


# Figure 9: a query whose consensus is wrong.


def _hard(plan: Plan) -> Experiment:
    return Experiment("mq2008 hard queries", "hard_queries", "mq2008", {"items": 8}, 10.0)


def hard_query(plan: Plan, found: Found) -> Finding:
    result = found(_hard(plan))
    shown, turned = result["shown"], len(result["turned"])
    often = (
        f"{turned} of {result['queries']} test queries: RRF has NDCG@1 of 0, SVDsup of 1; the reverse: {result['lost']}"
    )
    sections = []
    if shown:
        rows = [
            [item["item"], str(item["label"]), str(item["consensus"]), str(item["rank"]), f"{item['score']:+.2f}"]
            for item in shown["items"]
        ]
        sections = [
            section(
                f"Query {shown['query']}, as the paper draws one",
                figures([what_experts_said(shown)]),
                table(["item", "label", "place by rrf", "place by lambdarank", "its score"], rows, label="Items"),
                note="The paper does not name its query; this is one of its size (8 items, one relevant), or near it.",
            )
        ]
    return Finding(
        "Volkovs & Zemel 2014, Figure 9: a query whose consensus is wrong",
        "Test queries of fold 1 of MQ2008-agg.",
        claims=[
            Claim("there are queries that consensus gets wrong and SVDsup right", int(turned > 0), 1, often),
        ],
        pictures=sections,
    )


# Figure 11: the weights of the CRF; Table 6: training again without the experts that are not used.


def _weights(plan: Plan) -> Experiment:
    return Experiment("mq2008 weights", "expert_weights", "mq2008", {"settings": PLAIN}, 6.0)


def weights(plan: Plan, found: Found) -> Finding:
    result, paper = found(_weights(plan)), PAPERS["experts"]
    judged = {row["expert"]: row for row in result["experts"]}
    claims = []
    for kind, text in (
        ("useful", "are good indicators of relevance"),
        ("unused", "are not used"),
        ("inverted", "are used turned round"),
    ):
        names = [name for name in paper[kind] if name in judged]
        points = {f"{name} is {judged[name]['verdict']}": judged[name]["verdict"] == kind for name in names}
        claims.append(fact(f"experts {', '.join(paper[kind])} {text}", points or {"none of them is here": False}))
    rows = [
        [row["expert"], row["verdict"], f"{row['order']:+.2f}", f"{row['listed']:+.2f}", f"{100 * row['loss']:+.2f}"]
        for row in result["experts"]
    ]
    return Finding(
        "Volkovs & Zemel 2014, Figure 11: weights of experts",
        "crf with the paper's potentials, training queries of fold 1 of MQ2008-agg.",
        claims=claims,
        pictures=[
            section("As the paper draws it", hinton_figure(result["weights"])),
            section(
                "What they do to the scores",
                table(
                    ["expert", "verdict", "order", "listed", "loss of MAP without, %"],
                    rows,
                    label="Experts",
                    left=(0, 1),
                ),
                note="order: how far its order moves items; listed: how far being in its list does; 1 is typical.",
            ),
        ],
    )


def _unused(plan: Plan, settings: dict[str, float]) -> Experiment:
    name = "mq2008 without unused experts" + (", as the paper" if settings else "")
    given = {"settings": settings, "papers": PAPERS["experts"]["unused"], "seeds": plan.seeds}
    return Experiment(name, "unused_experts", "mq2008", given, 12.0 * plan.seeds)


def unused(plan: Plan, found: Found) -> Finding:
    tables, claims = [], []
    by_paper = {name: 100.0 * np.mean(runs, axis=0)[:5] for name, runs in found(_unused(plan, PLAIN))["means"].items()}
    for title, settings in (("crf", {}), ("crf as the paper", PLAIN)):
        result, rows = found(_unused(plan, settings)), []
        for name, runs in result["means"].items():
            values = 100.0 * np.array(runs)
            spread = values.std(axis=0, ddof=1)[:5].tolist() if len(runs) > 1 else []
            printed, reason = PAPERS["unused"].get(name, ()), REASONS.get("unused", {}).get(name, "")
            again = by_paper[name].tolist() if printed and not settings else ()
            rows.append(Row(name, values.mean(axis=0)[:5].tolist(), printed, spread, reason, again))
        often = ", ".join(f"{who} in {n}" for who, n in sorted(result["unused"].items(), key=lambda one: -one[1]))
        papers = ", ".join(PAPERS["experts"]["unused"])
        note = f"Unused, of {plural(result['models'], 'model')}: {often or 'nobody'}. The paper's: {papers}."
        tables.append(Figures(title, result["metrics"][:5], rows, note, judged=not settings))
        all_experts = result["queries"]["all experts"]
        claims += [
            level(
                f"{title} trained again {name} experts is comparable or better",
                {m: (np.array(values[m]), np.array(all_experts[m])) for m in result["metrics"]},
            )
            for name, values in result["queries"].items()
            if name != "all experts"
        ]
    about = "MQ2008-agg, five folds. Every fold leaves out what its own model does not use on its training queries."
    return Finding("Volkovs & Zemel 2014, Table 6: without the experts that are not used", about, tables, claims)


ITEMS = [
    Item(
        "volkovs2014-figure7",
        "Figure 7: adherence of experts",
        ("mq2007",),
        adherence_needs,
        adherence,
        ("Volkovs & Zemel 2012, Figure 3",),
    ),
    Item(
        "volkovs2014-figure8",
        "Figure 8: every expert for itself, or all together",
        ("mq2008", "mq2007"),
        specialised_needs,
        specialised,
    ),
    Item(
        "volkovs2014-figure9",
        "Figure 9: a query whose consensus is wrong",
        ("mq2008",),
        lambda plan: [_hard(plan)],
        hard_query,
    ),
    Item(
        "volkovs2014-figure11",
        "Figure 11: weights of experts",
        ("mq2008",),
        lambda plan: [_weights(plan)],
        weights,
        ("Volkovs & Zemel 2013, Figure 1",),
    ),
    Item(
        "volkovs2014-table6",
        "Table 6: without the experts that are not used",
        ("mq2008",),
        lambda plan: [_unused(plan, settings) for settings in ({}, PLAIN)],
        unused,
        ("Volkovs & Zemel 2013, Table 3",),
    ),
]
