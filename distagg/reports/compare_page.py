"""The report of a comparison: the table, confidence intervals, differences between models, and their cost.

Its input is the output of ``distagg compare --json`` (see ``distagg.reports.comparison``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from distagg.reports import charts as svg
from distagg.reports.comparison import LEVEL, Comparison, PairedTest, read_comparison
from distagg.reports.dataset_page import dataset_facts, dataset_name, dataset_pictures, rankings_section
from distagg.reports.html import Child, Markup, element, figure, figures, folded, join, page, section, table
from distagg.reports.text import NOTHING, count, number, p_value, percent, plural, seconds

_WORSE, _BETTER = "▾", "▴"
_OPEN_MODELS = 16  # with more, small multiples start folded
_OPEN_DIFFERENCES = 12
_LISTED_TESTS = 800  # with more, pairs without the reference model are omitted
_TEST_HEADERS = (
    "models",
    "difference",
    "95% interval",
    "p (t)",
    "p (rand.)",
    "p (t), Holm",
    "p (rand.), Holm",
    "queries",
)


def compare_report(result: Mapping[str, Any]) -> str:
    """The HTML report of a comparison.

    Examples
    --------
    >>> html = compare_report({"means": {"rrf": {"map": 0.4771}, "borda": {"map": 0.4123}}, "protocol": "letor"})
    >>> "47.71" in html and "<script" not in html
    True
    """
    seen = read_comparison(result)
    info = result.get("dataset") or {}
    if not isinstance(info, Mapping):
        info = {"name": info}
    sections = [
        _means_section(seen),
        _intervals_section(seen),
        _differences_section(seen),
        _folds_section(seen),
        _tests_section(seen),
        _adherence_section(result.get("adherence") or {}),
        section("Dataset", dataset_facts(info), dataset_pictures(info)),
        _cost_section(result.get("seconds") or {}, seen),
        rankings_section(result.get("rankings") or ()),
        _pages_section(result.get("pages") or {}),
        _command_section(result.get("command")),
    ]
    return page(dataset_name(info), _subtitle(result, seen, info), sections, lead=_lead(seen))


def _subtitle(result: Mapping[str, Any], seen: Comparison, info: Mapping[str, Any]) -> str:
    parts = [f"Comparison of {plural(len(seen.models), 'model')}"]
    parts += [f"{key} {result[key]}" for key in ("protocol", "folds", "seed") if result.get(key) is not None]
    if info.get("queries") is not None:
        parts.append(plural(int(info["queries"]), "query"))
    return " · ".join(parts)


def _lead(seen: Comparison) -> str:
    """The result in a sentence or two."""
    metric = next(iter(seen.metrics), None)
    if metric is None or not seen.best(metric):
        return ""
    winners = [model for model in seen.ordered(metric) if model in seen.best(metric)]
    verb = "has" if len(winners) == 1 else "share"
    said = f"{' and '.join(winners)} {verb} the highest {metric}, {percent(seen.value(winners[0], metric))}%."
    reference = seen.reference(metric)
    tests = _against(seen, metric, reference)
    if tests and reference is not None:
        sure = sum(test.significant for test in tests)
        said += (
            f" Significantly different from {reference}: {sure} of the {plural(len(tests), 'model')} tested against it."
        )
    return said


def _against(seen: Comparison, metric: str, reference: str | None) -> list[PairedTest]:
    """Tests of every other model against the reference, in the order of the models."""
    if reference is None:
        return []
    tests = (seen.test(metric, model, reference) for model in seen.ordered() if model != reference)
    return [test for test in tests if test is not None]


def _adherence_section(adherence: Mapping[str, Any]) -> Markup:
    """Every expert's adherence, as in Volkovs & Zemel 2014, figure 7."""
    rows = adherence.get("models") or {}
    if not rows:
        return section("Adherence")
    desc = "One cell for each expert in the dataset's order, dark where its preferences follow the consensus."
    picture = svg.strips(rows, adherence["experts"], title="Adherence of every expert", desc=desc)
    note = f"From the training queries of fold {adherence['fold']}. Dark is 1, pale is 0; hold the pointer over a cell."
    return section("Adherence", figure("Adherence of every expert", picture), note=note)


def _means_section(seen: Comparison) -> Markup:
    best = {metric: seen.best(metric) for metric in seen.metrics}

    def cell(model: str, metric: str) -> Markup:
        written = percent(seen.value(model, metric))
        shown = element("strong", written) if model in best[metric] else written
        return join([shown, element("sup", _mark(seen, model, metric))])

    rows = [[_name(seen, model), *(cell(model, metric) for metric in seen.metrics)] for model in seen.ordered()]
    body = table(["model", *seen.metrics], rows, label="Models by metrics")
    return section("Results", body, note=_legend(seen))


def _name(seen: Comparison, model: str) -> Child:
    return join([model, " (reference)"]) if model == seen.baseline else model


def _mark(seen: Comparison, model: str, metric: str) -> str:
    reference = seen.reference(metric)
    test = seen.test(metric, model, reference) if reference not in (None, model) else None
    if test is None or not test.significant:
        return ""
    return _WORSE if test.difference < 0 else _BETTER


def _legend(seen: Comparison) -> str:
    said = "Means in percent, best first by the first metric; the best of each column is bold."
    if not seen.tests:
        return said + " No significance tests were made."
    against = f"the reference {seen.baseline}" if seen.baseline is not None else "the best model of the column"
    marks = f"{_WORSE} significantly below {against}"
    if seen.baseline is not None:
        marks += f", {_BETTER} significantly above it"
    return f"{said} {marks} (paired test, Holm-corrected p < {LEVEL})."


def _intervals_section(seen: Comparison) -> Markup:
    if not seen.metrics or not seen.models:
        return Markup("")
    first, *others = seen.metrics
    rows = []
    for model in seen.ordered(first):
        low, high = seen.interval(model, first)
        rows.append([model, percent(seen.value(model, first)), percent(low), percent(high)])
    numbers = table(["model", first, "low", "high"], rows, label=f"{first} with 95% confidence intervals")
    lead = element("div", figure(first, _bars(seen, first)), numbers, class_="lead-figure")
    small = figures(figure(metric, _bars(seen, metric)) for metric in others)
    unfolded = len(seen.models) <= _OPEN_MODELS
    rest = folded(plural(len(others), "other metric"), small, unfolded=unfolded) if others else ""
    over = "queries" if seen.per_query else "folds"
    note = f"Means in percent, with 95% confidence intervals over {over} where there are at least two."
    return section("How sure the means are", lead, rest, note=note)


def _bars(seen: Comparison, metric: str) -> Markup:
    best = seen.best(metric)
    drawn = []
    for model in seen.ordered(metric):
        value, (low, high) = seen.value(model, metric), seen.interval(model, metric)
        drawn.append(svg.Bar(model, value, percent(value), low, high, "chosen" if model in best else ""))
    return svg.bars(drawn, title=f"{metric} of each model", desc="Mean in percent; whiskers: 95% confidence interval.")


def _differences_section(seen: Comparison) -> Markup:
    metric = next(iter(seen.metrics), "")
    reference = seen.reference(metric)
    if reference is None:
        return Markup("")
    others = [model for model in seen.ordered(metric) if model != reference]
    paired = {model: seen.differences(model, reference, metric) for model in others}
    paired = {model: values for model, values in paired.items() if values}
    if not paired:
        return Markup("")
    limit = _round_limit(max(abs(value) for values in paired.values() for value in values))
    drawn = [
        figure(model, svg.differences(values, limit=limit, title=f"{model} minus {reference}, {metric}, per query"))
        for model, values in paired.items()
    ]
    rest = drawn[_OPEN_DIFFERENCES:]
    rows = [[model, *_tally(values)] for model, values in paired.items()]
    numbers = table(["model", "better", "equal", "worse", "mean difference"], rows, label="Queries won and lost")
    note = f"Each query's {metric} minus that of {reference}, in percentage points, the largest gain at the left."
    return section(
        f"Query by query against {reference}",
        figures(drawn[:_OPEN_DIFFERENCES]),
        folded(plural(len(rest), "more model"), figures(rest)) if rest else "",
        folded("Numbers", numbers),
        note=note,
    )


def _round_limit(value: float) -> float:
    """A round end of the scale, at or above ``value``."""
    step = 0.1 if value > 0.1 else 0.01
    return max(math.ceil(value / step - 1e-9) * step, step)


def _tally(values: Sequence[float]) -> list[str]:
    better, worse = sum(v > svg.TIE for v in values), sum(v < -svg.TIE for v in values)
    mean = math.fsum(values) / len(values)
    return [count(better), count(len(values) - better - worse), count(worse), percent(mean, signed=True)]


def _folds_section(seen: Comparison) -> Markup:
    tables: list[Child] = []
    for metric in seen.metrics:
        folds = dict.fromkeys(fold for model in seen.models for fold in seen.folds.get((model, metric), {}))
        rows = []
        for model in seen.ordered():
            values = seen.folds.get((model, metric), {})
            figures_of_folds = [percent(values.get(fold)) for fold in folds]
            rows.append([model, *figures_of_folds, percent(seen.value(model, metric))])
        if folds:
            tables.append(element("h3", metric))
            tables.append(
                table(
                    ["model", *(f"fold {f}" if f.isdigit() else f for f in folds), "mean"],
                    rows,
                    label=f"{metric} by fold",
                )
            )
    return section("Fold by fold", folded("Figures of every fold, in percent", *tables) if tables else "")


def _tests_section(seen: Comparison) -> Markup:
    tables: list[Child] = []
    told: set[tuple[str, frozenset[str]]] = set()
    for metric in seen.metrics:
        reference = seen.reference(metric)
        tests = _against(seen, metric, reference)
        told |= {(metric, frozenset((test.a, test.b))) for test in tests}
        if tests:
            body = _tests_table(tests, f"Significance tests, {metric}")
            tables.append(folded(f"{metric}, against {reference}", body, unfolded=not tables))
    others = [test for test in seen.tests.values() if (test.metric, frozenset((test.a, test.b))) not in told]
    note = (
        "Paired over queries; the first model minus the second, in percentage points. "
        f"Holm's correction is over the tests of one metric; bold where a corrected p is below {LEVEL}. "
        "Against a model that was chosen for being best on these same queries, p-values are somewhat too small."
    )
    if len(others) > _LISTED_TESTS:
        note += f" {len(others):,} tests between other pairs of models are omitted here; --json has all."
    elif others:
        tables.append(folded(f"Other pairs of models: {plural(len(others), 'test')}", _others_table(others)))
    return section("Significance", *tables, note=note)


def _others_table(tests: Sequence[PairedTest]) -> Markup:
    rows = [[*_test_row(test), test.metric] for test in tests]
    return table([*_TEST_HEADERS, "metric"], rows, label="Significance tests of other pairs")


def _tests_table(tests: Sequence[PairedTest], label: str) -> Markup:
    return table(_TEST_HEADERS, [_test_row(test) for test in tests], label=label)


def _test_row(test: PairedTest) -> list[Child]:
    def corrected(p: float) -> Child:
        return element("strong", p_value(p)) if p < LEVEL else p_value(p)

    low, high = percent(test.low, signed=True), percent(test.high, signed=True)
    return [
        f"{test.a} – {test.b}",
        percent(test.difference, signed=True),
        NOTHING if NOTHING in (low, high) else f"{low} to {high}",
        p_value(test.p_t),
        p_value(test.p_randomisation),
        corrected(test.p_t_holm),
        corrected(test.p_randomisation_holm),
        count(test.queries),
    ]


def _cost_section(spent: Mapping[str, Any], seen: Comparison) -> Markup:
    known = {model: number(spent[model]) for model in seen.models if model in spent}
    if not known:
        return Markup("")
    ordered = sorted(known, key=lambda model: (math.isnan(known[model]), known[model]))
    drawn = svg.bars([svg.Bar(m, known[m], seconds(known[m])) for m in ordered], title="Seconds per model")
    numbers = table(["model", "seconds"], [[m, seconds(known[m])] for m in ordered], label="Seconds per model")
    lead = element("div", figure("Seconds per model", drawn), numbers, class_="lead-figure")
    return section("Cost", lead, note="Wall-clock time of fitting, ranking and evaluating, all folds together.")


def _pages_section(pages: Mapping[str, str]) -> Markup:
    """Links to pages beside this one."""
    return section("More pages", *(element("p", element("a", title, href=file)) for file, title in pages.items()))


def _command_section(command: object) -> Markup:
    if not command:
        return Markup("")
    line = " ".join(str(word) for word in command) if isinstance(command, list | tuple) else str(command)
    return section("How to get it again", element("pre", element("code", line)))
