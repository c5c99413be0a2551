"""MovieLens 100K: Volkovs & Zemel 2014, section 2.7.

Its Tables 2 and 3 and figures 3 and 4 are Tables 2 and 3 and figures 4 and 5 of 2012.

``bradley_terry`` and ``plackett_luce`` are fitted as in the paper, by 100 plain gradient steps from 0, the first on
differences of ratings, the second with ties in the order of movies; and with our defaults. The paper does not tell the
lengths of its steps: ours put its movies at both ends. The paper's MPM has variances in all its experiments, so its
figures stand beside ``mpm, variance``. Table 2 needs completions that it names but does not describe: as the paper are
those of ``paper_completions``, ours are the package's. There ``pmf`` has one prior for offsets and factors;
``neighbours`` are drawn to the baseline.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import spearmanr

from distagg.reports.curves import Axis, lines
from distagg.reports.dataset_page import ends_table, variance_pictures
from distagg.reports.html import figure, figures, section, table
from distagg.reports.paper_page import Claim, Figures, Finding, Row, above, fact
from jobs.reproduce.experiments import Experiment
from jobs.reproduce.paper_completions import FACTORS
from jobs.reproduce.plan import PAPERS, REASONS, STEPS, Found, Item, Plan
from jobs.reproduce.ratings import DEPTHS

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bradley_terry": ("bradley_terry", {**STEPS, "pairs": "difference", "rate": 1e-4}),
    "bradley_terry, default": ("bradley_terry", {}),
    "plackett_luce": ("plackett_luce", {**STEPS, "ties": "order", "rate": 1.5e-3}),
    "plackett_luce, default": ("plackett_luce", {}),
    "mpm, variance": ("mpm", {"variance": True, "tolerance": 1e-5}),
    "mpm": ("mpm", {}),
}
COMPLETIONS: dict[str, dict[str, float]] = {"pmf": {"offset": 12.0}, "neighbours": {"offset": 25.0, "damp": 0.5}}
GAMMA = "mpm, variance"
DEFAULTS = {name: f"{name}, default" for name in ("bradley_terry", "plackett_luce")}  # the rows of our defaults
PRINTED = {GAMMA: "mpm"}  # rows that stand for another row of the paper than their name says
THREE = ("bradley_terry", "plackett_luce", GAMMA)
LENGTHS = {"pmf": 80.0, "neighbours": 120.0}  # of the paper's 100 gradient steps of mpm, for Table 2 as the paper
STEPPED = {name: f"mpm, 100 steps of length {length:g}" for name, length in LENGTHS.items()}
MOVIES = "943 users, 1,682 movies, 100,000 ratings"
STEPS_CHOSEN = (
    "bradley_terry and plackett_luce take the paper's 100 gradient steps, of lengths that put its movies at both ends, "
    "chosen with the paper's figures in sight."
)
SETTINGS = f"pmf has one prior (12) for offsets and factors; neighbours offset=25, damp=0.5. {STEPS_CHOSEN}"
PAPER_SETTINGS = (
    "As the paper: completions that are made like its own, which it does not describe. Neighbours are all users, "
    "weighted by the cosine of their ratings; a movie that fewer than 10 others rated has the mean of all ratings. PMF "
    "has {factors} factors, no mean, no offsets, priors of weight {weight:g}, {passes} passes. borda puts equal "
    "ratings of a user in the order of movies. mpm takes 100 gradient steps with variances, of length 80 where pmf "
    "completes and 120 where neighbours do: the two halves of the paper's table have two rankings. All were chosen "
    "with the paper's figures in sight."
).format(**FACTORS)
HALVED = (
    "The gain of every position but the first is 2^(rating - 1) - 1 in what is reached, and 2^rating - 1 in the ideal: "
    "the paper's figures come out so, though it does not say so."
)


def completed(plan: Plan) -> Experiment:
    given = {"variance": True, "solver": "gradient", "steps": 100}
    models = MODELS | {name: ("mpm", {**given, "rate": LENGTHS[key]}) for key, name in STEPPED.items()}
    return Experiment(
        "movielens completed",
        "completed",
        "movielens",
        {"models": models, "completions": COMPLETIONS},
        25.0,
    )


def constants(plan: Plan) -> Experiment:
    return Experiment("movielens constants", "constants", "movielens", {"models": {n: MODELS[n] for n in THREE}}, 15.0)


def ends(plan: Plan) -> Experiment:
    return Experiment("movielens ends", "ends", "movielens", {"models": MODELS, "count": 5}, 20.0)


def table2(plan: Plan, found: Found) -> Finding:
    tables, beyond, behind, lower, pmf = [], {}, {}, {}, {}
    result = found(completed(plan))
    for completion, rows in result["completions"].items():
        paper, reasons = PAPERS["movielens"][completion], REASONS["movielens"].get(completion, {})
        users = {name: np.array(row["users"]) for name, row in rows.items()}
        made = [Row(name, (100.0 * users[name].mean(axis=1)).tolist()) for name in rows if name not in STEPPED.values()]
        halved = {name: [100.0 * value for value in row["halved"]] for name, row in rows.items()}
        by_paper = {name: [100.0 * value for value in row] for name, row in result["paper"][completion].items()}
        half = [
            Row(name, halved[DEFAULTS.get(name, name)], printed, reason=reasons.get(name, ""), again=by_paper[again])
            for name, printed in paper.items()
            for again in [STEPPED[completion] if name == "mpm" else name]
        ]
        title = f"Completed by {completion}"
        tables += [
            Figures(title, DEPTHS, made, f"Mean NDCG over users, percent, by equation 2. {SETTINGS}"),
            Figures(
                f"{title}, later gains halved",
                DEPTHS,
                half,
                f"{HALVED} {PAPER_SETTINGS} Ours is by the same measure.",
            ),
        ]
        for at, depth in enumerate(DEPTHS):
            mpm = users[GAMMA][at]
            if at:
                beyond[f"{completion} {depth}"] = (mpm, users["plackett_luce"][at])
            behind[f"{completion} {depth}"] = (mpm, users["bradley_terry"][at])
            if completion == "pmf":
                lower[depth] = (mpm, users["neighbours, borda"][at])
            elif at >= 5:
                pmf[depth] = (users["pmf, borda"][at], mpm)
    return Finding(
        "Volkovs & Zemel 2014, Table 2: rankings against completed ratings",
        MOVIES,
        tables,
        [
            above("MPM is above Plackett-Luce beyond the first position", beyond),
            above("MPM is above Bradley-Terry", behind),
            above("MPM is above the neighbour-based model, ratings completed by PMF", lower),
            above("PMF is above MPM at 6 to 10, ratings completed by neighbours", pmf),
        ],
    )


def table3(plan: Plan, found: Found) -> Finding:
    result, claims, sections = found(ends(plan))["ends"], [], []
    for name in (*THREE, "mpm"):
        for end, step in (("top", 1), ("bottom", -1)):  # the paper begins with the last movie of all
            rows, paper = result[name][end][::step], PAPERS["ends"][PRINTED.get(name, name)][end]
            points = {
                f"{title} ({users}, {won:,}, {lost:,})": any(_is(row, users, won, lost) for row in rows)
                for title, users, won, lost in paper
            }
            claims.append(fact(f"the {end} five of {name}", points))
            same = [_is(row, *support) for row, (_, *support) in zip(rows, paper, strict=True)]
            claims.append(fact(f"the {end} five of {name}, in the paper's order", {f"{sum(same)} of 5": all(same)}))
    fewest = {name: min(row["experts"] for end in result[name].values() for row in end) for name in result}
    told = {
        f"{name}: {fewest[name]} users": fewest[name] < 30 if name in THREE[:2] else fewest[name] > 50
        for name in (*THREE[:2], "mpm")
    }
    claims.append(
        fact("movies at both ends have few users by Bradley-Terry and Plackett-Luce, more than 50 by MPM", told)
    )
    for name, both in result.items():
        cells = [ends_table(name, both)]
        printed = PRINTED.get(name, name)
        if printed in PAPERS["ends"]:
            lines = [[*map(str, row)] for end in ("top", "bottom") for row in PAPERS["ends"][printed][end]]
            cells.append(table(["the paper's", "users", "won", "lost"], lines, label=f"{name}, paper"))
        sections.append(section(name, *cells))
    return Finding("Volkovs & Zemel 2014, Table 3: movies at both ends", MOVIES, claims=claims, pictures=sections)


def _is(row: dict[str, Any], users: int, won: int, lost: int) -> bool:
    """The movie of the paper, by its support; titles are shortened there."""
    return (row["experts"], row["won"], row["lost"]) == (users, won, lost)


def figure3(plan: Plan, found: Found) -> Finding:
    result = found(constants(plan))
    users = {name: np.array(values) for name, values in result["users"].items()}  # constants x metrics x users
    drawn, pairs = [], {}
    for at, metric in enumerate(result["metrics"]):
        means = {
            name: list(zip(result["values"], (100.0 * values[:, at].mean(axis=1)).tolist(), strict=True))
            for name, values in users.items()
        }
        picture = lines(
            means, x=Axis("rating imputed"), y=Axis(f"{metric}, percent"), title=f"{metric} by the rating imputed"
        )
        drawn.append(figure(metric, picture))
        for n, value in enumerate(result["values"]):
            for other in ("plackett_luce", "bradley_terry"):
                pairs[f"{metric}, {value:g}, over {other}"] = (users[GAMMA][n, at], users[other][n, at])
    return Finding(
        "Volkovs & Zemel 2014, Figure 3: what unrated movies are taken for",
        MOVIES,
        claims=[above("MPM is significantly above both others whatever is imputed", pairs)],
        pictures=[section("As the paper draws it", figures(drawn))],
    )


def figure4(plan: Plan, found: Found) -> Finding:
    known = found(ends(plan))["variance"]
    gamma, support = np.array(known["uncertainty"]), np.array(known["experts"])
    tenth = max(len(gamma) // 10, 1)
    alike = spearmanr(gamma, support)
    middle = float(np.median(gamma[4 * tenth : 6 * tenth]))
    edges = {"first": float(np.median(gamma[:tenth])), "last": float(np.median(gamma[-tenth:]))}
    sure = {}
    for title in PAPERS["sure"]["titles"]:
        if title in known["title"]:
            at = known["title"].index(title)
            less = float((gamma < gamma[at]).mean())
            sure[f"{title} at {known['rank'][at]:,} of {len(gamma):,}, less variance than {1 - less:.0%}"] = bool(
                less < 0.1 and 0.2 < known["rank"][at] / len(gamma) < 0.8
            )
    drawn = variance_pictures({"support": known["experts"], "rank": known["rank"], "uncertainty": known["uncertainty"]})
    said = f"rank correlation {alike.statistic:+.2f} (p = {alike.pvalue:.1e})"
    return Finding(
        "Volkovs & Zemel 2014, Figure 4: learned variances",
        f"{MOVIES}; mpm with variances.",
        claims=[
            Claim(
                "variance falls as the number of ratings grows",
                int(alike.statistic < 0 and alike.pvalue < 0.05),
                1,
                said,
            ),
            fact(
                "variance is less at both ends of the ranking than in the middle",
                {
                    f"median {v:.2f} in the {end} tenth, {middle:.2f} in the middle": v < middle
                    for end, v in edges.items()
                },
            ),
            fact("some movies in the middle are sure", sure or {"none of the paper's movies is here": False}),
        ],
        pictures=[section("As the paper draws it", drawn)],
    )


def _item(name: str, title: str, needs: Any, draw: Any, again: str) -> Item:
    return Item(name, title, ("movielens",), lambda plan: [needs(plan)], draw, (again,))


ITEMS = [
    _item(
        "volkovs2014-table2",
        "Table 2: rankings against completed ratings",
        completed,
        table2,
        "Volkovs & Zemel 2012, Table 2 (its PMF half)",
    ),
    _item("volkovs2014-table3", "Table 3: movies at both ends", ends, table3, "Volkovs & Zemel 2012, Table 3"),
    _item(
        "volkovs2014-figure3",
        "Figure 3: what unrated movies are taken for",
        constants,
        figure3,
        "Volkovs & Zemel 2012, Figure 4",
    ),
    _item("volkovs2014-figure4", "Figure 4: learned variances", ends, figure4, "Volkovs & Zemel 2012, Figure 5"),
]
