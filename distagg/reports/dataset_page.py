"""Reports of a dataset and of its rankings.

``dataset_report`` shows counts, distributions and the coverage of experts. Its input is the output of ``distagg info
--json``, optionally with ``histograms`` and ``coverage``.

``rankings_section`` shows the top of rankings: a list of {"model", "query", "items": [{"item", "rank", "score",
"label"}]}, where ``model``, ``score`` and ``label`` are optional.

``consensus_report`` shows both ends of one ranking from very many experts, with their support and the uncertainty. Its
input is a dictionary with optional keys: ``title``; ``ends`` {model: {"top": rows, "bottom": rows}} with rows of rank,
title (or item), experts or comparisons, won, lost; ``variance`` {"support", "unit", "rank", "uncertainty"}, where unit
names what support counts; ``experts``, rows of expert, reliability, low, high, votes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from distagg.reports import charts as svg
from distagg.reports.curves import cloud
from distagg.reports.experts_page import reliability_section
from distagg.reports.html import Child, Markup, element, facts, figure, figures, folded, page, section, table
from distagg.reports.text import NOTHING, count, number, plural, share

_COUNTS = ("queries", "items", "experts", "lists", "entries", "ties")
_SPREADS = {"list_lengths": "list length", "query_sizes": "query size"}
_PICTURES = {"list_length": "List lengths", "query_size": "Items per query"}
_NAMED_EXPERTS = 40  # more than this many become cells without names
_LISTED_EXPERTS = 500
_LISTED_PARTS = 40
_ITEMS = 10
_QUERIES = 12


def dataset_report(info: Mapping[str, Any]) -> str:
    """The HTML report of a dataset.

    Examples
    --------
    >>> html = dataset_report({"name": "mq2008-agg", "queries": 784, "items": 15211, "labels": {"0": 12279}})
    >>> "15,211" in html and "<script" not in html
    True
    """
    sections = [
        section("Contents", dataset_facts(info)),
        section("Distributions", dataset_pictures(info)),
        _parts_section(info.get("parts") or ()),
        rankings_section(info.get("rankings") or ()),
    ]
    about = [str(info[key]) for key in ("kind",) if info.get(key)]
    if info.get("partition"):
        about.append(f"partitioned by {info['partition']}")
    return page(dataset_name(info), " · ".join(["Dataset", *about]), sections)


def dataset_name(info: Mapping[str, Any]) -> str:
    """The dataset's name in reports: its name, or the last part of its path.

    >>> dataset_name({"path": "data/mq2008-agg/"})
    'mq2008-agg'
    """
    return str(info.get("name") or PurePath(str(info.get("path") or "")).name or "Dataset")


def dataset_facts(info: Mapping[str, Any]) -> Markup:
    """The counts, the missing share and the spreads, as short figures."""
    pairs = [(key, count(info[key])) for key in _COUNTS if key in info]
    if "missing" in info:
        pairs.append(("cells missing", share(info["missing"])))
    for key, name in _SPREADS.items():
        spread = info.get(key)
        if isinstance(spread, Mapping):
            low, middle, high = (count(spread.get(end)) for end in ("min", "median", "max"))
            pairs.append((f"{name}, median", middle))
            pairs.append((f"{name}, range", f"{low} to {high}"))
    return facts(pairs) if pairs else Markup("")


def dataset_pictures(info: Mapping[str, Any]) -> Markup:
    """Labels, list lengths, query sizes and coverage, each with its numbers folded below it."""
    histograms = info.get("histograms") or {}
    pictures: list[Child] = [_labels_figure(info.get("labels") or {})]
    pictures += [_histogram_figure(title, histograms.get(key) or {}) for key, title in _PICTURES.items()]
    pictures.append(_coverage_figure(info.get("coverage") or {}))
    return figures(pictures)


def _labels_figure(labels: Mapping[str, Any]) -> Markup:
    if not labels:
        return Markup("")
    ordered = sorted(labels.items(), key=lambda pair: (_label_order(pair[0]), str(pair[0])))
    total = math.fsum(number(amount) for _, amount in ordered) or math.nan
    rows = [(str(label), number(amount), share(number(amount) / total)) for label, amount in ordered]
    drawn = [svg.Bar(f"label {label}", amount, f"{count(amount)} ({part})") for label, amount, part in rows]
    picture = svg.bars(drawn, title="Items per label", desc="How many items carry each relevance label.")
    numbers = table(["label", "items", "share"], [[a, count(b), c] for a, b, c in rows], label="Items per label")
    return element("div", figure("Items per label", picture), folded("Numbers", numbers))


def _histogram_figure(title: str, histogram: Mapping[str, Any]) -> Markup:
    edges = [number(edge) for edge in histogram.get("edges") or ()]
    counts = [number(amount) for amount in histogram.get("counts") or ()]
    usable = len(edges) == len(counts) + 1 and counts and all(math.isfinite(v) for v in (*edges, *counts))
    if not usable:
        return Markup("")
    picture = svg.histogram(edges, counts, title=title, desc=f"{title}, from {count(edges[0])} to {count(edges[-1])}.")
    rows = [[f"{count(a)} to {count(b)}", count(n)] for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)]
    return element("div", figure(title, picture), folded("Numbers", table(["from, to", "count"], rows, label=title)))


def _coverage_figure(coverage: Mapping[str, Any]) -> Markup:
    if not coverage:
        return Markup("")
    shares = {str(expert): number(part) for expert, part in coverage.items()}
    title, desc = "Coverage per expert", "Share of the items that each expert lists."
    if len(shares) <= _NAMED_EXPERTS:
        picture = svg.bars([svg.Bar(name, part, share(part)) for name, part in shares.items()], title=title, desc=desc)
    else:
        picture = svg.heat_strip(shares, title=title, desc=desc)
    known = sorted(part for part in shares.values() if math.isfinite(part))
    middle = share(known[len(known) // 2]) if known else NOTHING
    note = f"{plural(len(shares), 'expert')}; the median one lists {middle} of the items."
    if len(shares) > svg.CELLS:
        note += f" {svg.CELLS:,} of them are drawn, evenly spaced."
    rows = [[name, share(part)] for name, part in list(shares.items())[:_LISTED_EXPERTS]]
    numbers = table(["expert", "items listed"], rows, label=title)
    more = _left_out(len(shares), _LISTED_EXPERTS, "expert")
    return element("div", figure(title, picture, note=note), folded("Numbers", numbers, more))


def _parts_section(parts: Sequence[Any]) -> Markup:
    names = [str(part.get("name", part)) if isinstance(part, Mapping) else str(part) for part in parts]
    shown = element("p", ", ".join(names[:_LISTED_PARTS])) if names else ""
    return section("Source parts", shown, _left_out(len(names), _LISTED_PARTS, "part") if names else "")


def _left_out(amount: int, limit: int, noun: str) -> Markup:
    if amount <= limit:
        return Markup("")
    return element("p", f"The first {limit:,} of {plural(amount, noun)}; --json has all.", class_="note")


def _label_order(label: object) -> float:
    try:
        return float(str(label))
    except ValueError:
        return math.inf


def rankings_section(rankings: Sequence[Mapping[str, Any]]) -> Markup:
    """Top items of the first queries; nothing when there are no rankings.

    >>> "Star Wars" in rankings_section([{"query": "q1", "items": [{"item": "Star Wars", "rank": 1}]}])
    True
    """
    shown = [_one_ranking(ranking) for ranking in rankings[:_QUERIES]]
    note = f"The first {_QUERIES} of {len(rankings):,} rankings." if len(rankings) > _QUERIES else ""
    return section("Top of the rankings", element("div", *shown, class_="figures") if shown else "", note=note)


def _one_ranking(ranking: Mapping[str, Any]) -> Markup:
    items = list(ranking.get("items") or ())
    extra = [key for key in ("score", "label") if any(item.get(key) is not None for item in items)]
    rows = [
        [
            count(item.get("rank", place)),
            str(item.get("item", "")),
            *(f"{number(item.get(key)):.4g}".replace("nan", "–") for key in extra),
        ]
        for place, item in enumerate(items[:_ITEMS], start=1)
    ]
    title = f"Query {ranking.get('query', '')}" + (f", {ranking['model']}" if ranking.get("model") else "")
    body = table(["rank", "item", *extra], rows, label=title, left=(1,))
    more = f"{len(items) - _ITEMS:,} more items" if len(items) > _ITEMS else ""
    return element("div", element("h3", title), body, *([element("p", more, class_="note")] if more else []))


def consensus_report(contents: Mapping[str, Any]) -> str:
    """The page of one ranking from very many experts: its contents are described above.

    >>> row = {"rank": 1, "title": "Star Wars", "experts": 583, "won": 49290, "lost": 10112}
    >>> html = consensus_report({"title": "Movies", "ends": {"mpm": {"top": [row], "bottom": []}}})
    >>> "Star Wars" in html and "49,290" in html
    True
    """
    sections = [
        section("Both ends", *(ends_table(name, both) for name, both in (contents.get("ends") or {}).items())),
        section("Covariates", coefficients_section(contents.get("coefficients") or ())),
        section("How sure it is", variance_pictures(contents.get("variance") or {})),
        reliability_section(contents.get("experts") or []),
    ]
    return page(str(contents.get("title") or "Ranking"), "One ranking from many experts", sections)


def coefficients_section(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Coefficients of covariates, with standard errors, 95% intervals and odds ratios."""
    if not rows:
        return Markup("")
    names = ("coefficient", "error", "low", "high", "odds_ratio")
    body = [[str(row["query"]), str(row["covariate"]), *(f"{row[name]:.4g}" for name in names)] for row in rows]
    heads = ["query", "covariate", *(name.replace("_", " ") for name in names)]
    return table(heads, body, label="coefficients", left=(0, 1))


def ends_table(name: str, both: Mapping[str, Sequence[Mapping[str, Any]]]) -> Markup:
    shown = [*both["top"], *both["bottom"]]
    keys = [key for key in ("experts", "comparisons", "won", "lost") if any(key in row for row in shown)]
    rows = [_row(row, keys) for row in both["top"]]
    if both["bottom"]:
        rows += [["…", "", *([""] * len(keys))], *(_row(row, keys) for row in both["bottom"])]
    body = table(["rank", "item", *keys], rows, label=name, left=(1,))
    return element("div", element("h3", name), body)


def _row(row: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    return [count(row["rank"]), str(row.get("title") or row.get("item") or ""), *(count(row[key]) for key in keys)]


def variance_pictures(variance: Mapping[str, Any]) -> Markup:
    if not variance:
        return Markup("")
    pictures = []
    if variance.get("support"):
        picture = cloud(variance["support"], variance["uncertainty"], title="Uncertainty against support", log=True)
        pictures.append(figure(f"Uncertainty against the number of {variance.get('unit', 'experts')}", picture))
    picture = cloud(variance["rank"], variance["uncertainty"], title="Uncertainty against rank")
    return figures([*pictures, figure("Uncertainty against rank", picture)])
