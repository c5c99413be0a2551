"""Text for the terminal: tables aligned by display width, comparisons, learned parameters; colours only on request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.errors import UsageError
from distagg.reports.comparison import read_comparison
from distagg.reports.text import NOTHING, columns, number, p_value, percent, printable, seconds, size

_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_EXPERTS, _WEIGHTS, _BAR = 50, 12, 20  # experts, weights of each, letters of a bar


def render_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    align: str | None = None,
    *,
    bold: Collection[tuple[int, int]] = (),
    colour: bool = False,
) -> str:
    """Rows under headers, two spaces between columns, no space at the ends of lines.

    Parameters
    ----------
    align
        One letter per column, ``l`` or ``r``; by default the first column is left, the others right.
    bold
        (row, column) of the cells to print bold, where ``colour`` allows it.
    colour
        Whether to use ANSI codes.

    Examples
    --------
    >>> print(render_table(["model", "map"], [["rrf", "47.71"], ["borda", None]]))
    model    map
    -----  -----
    rrf    47.71
    borda      –
    """
    sides = align if align is not None else "l" + "r" * (len(headers) - 1)
    if len(sides) != len(headers) or set(sides) - {"l", "r"}:
        raise UsageError(f"found align {sides!r}, expected one 'l' or 'r' for each of {len(headers)} columns")
    wrong = next((row for row in rows if len(row) != len(headers)), None)
    if wrong is not None:
        raise UsageError(f"found a row of {len(wrong)} cells, expected {len(headers)}: {list(wrong)!r}")
    head = [printable(name) for name in headers]
    body = [[_cell(value) for value in row] for row in rows]
    widths = [max(columns(row[place]) for row in [head, *body]) for place in range(len(head))]

    def line(cells: Sequence[str], row: int) -> str:
        padded = []
        for place, (cell, width, side) in enumerate(zip(cells, widths, sides, strict=True)):
            space = " " * (width - columns(cell))
            shown = f"{_BOLD}{cell}{_PLAIN}" if colour and (row, place) in bold else cell
            padded.append(space + shown if side == "r" else shown + space)
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(head, -1), rule, *(line(cells, row) for row, cells in enumerate(body))])


def ranking_table(ranking: pa.Table, queries: int, items: int) -> str:
    """The first items of the first queries of a ranking.

    >>> rows = {"query": ["q", "q", "r"], "item": ["a", "b", "a"], "rank": [1, 2, 1], "score": [0.25, 0.125, 1.0]}
    >>> print(ranking_table(pa.table(rows), queries=1, items=1))
    query  item  rank  score
    -----  ----  ----  -----
    q      a        1   0.25
    """
    first = set(ranking["query"].unique().to_pylist()[:queries])
    rows = [row for row in ranking.to_pylist() if row["query"] in first and row["rank"] <= items]
    words = [name for name in ranking.column_names if pa.types.is_string(ranking.schema.field(name).type)]
    align = "".join("l" if name in words else "r" for name in ranking.column_names)
    body = [[f"{value:.6g}" if isinstance(value, float) else value for value in row.values()] for row in rows]
    return render_table(ranking.column_names, body, align)


def coefficients_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The coefficients of covariates, with their standard errors, 95% intervals and odds ratios.

    >>> row = {"query": "all", "covariate": "position", "coefficient": 0.4, "error": 0.02, "low": 0.36, "high": 0.44}
    >>> print(coefficients_table([{**row, "odds_ratio": 1.49182}]))
    covariate  coefficient  error   low  high  odds_ratio
    ---------  -----------  -----  ----  ----  ----------
    position           0.4   0.02  0.36  0.44     1.49182
    """
    several = len({row.get("query") for row in rows}) > 1
    names = [name for name in rows[0] if several or name != "query"]
    body = [[f"{row[name]:.6g}" if isinstance(row[name], float) else row[name] for name in names] for row in rows]
    return render_table(names, body, "".join("l" if name in ("query", "covariate") else "r" for name in names))


def comparison_table(result: Mapping[str, Any], *, colour: bool = False, what: str = "model") -> str:
    """Models by metrics, in percent, the best model of the first metric on top, the best of a column bold.

    >>> print(comparison_table({"means": {"rrf": {"map": 0.4771}, "borda": {"map": 0.41}}}))
    model    map
    -----  -----
    rrf    47.71
    borda  41.00
    """
    seen = read_comparison(result)
    best = {metric: seen.best(metric) for metric in seen.metrics}
    models = seen.ordered()
    rows = [[model, *(percent(seen.value(model, metric)) for metric in seen.metrics)] for model in models]
    bold = {
        (row, place)
        for row, model in enumerate(models)
        for place, metric in enumerate(seen.metrics, start=1)
        if model in best[metric]
    }
    table = render_table([what, *seen.metrics], rows, bold=bold, colour=colour)
    footer = [counted_by(result["protocol"])] if result.get("protocol") else []
    return "\n".join([table, *footer, *_chosen(result.get("chosen") or {})])


def significance_table(result: Mapping[str, Any]) -> str:
    """The paired tests of a comparison by its first metric: difference, interval and p-value against the baseline.

    >>> test = {"metric": "map", "a": "borda", "b": "rrf", "difference": -0.067, "low": -0.1, "high": -0.03}
    >>> print(significance_table({"baseline": "rrf", "tests": [{**test, "p_t_holm": 0.0004}]}))
    map against rrf  difference     95% interval  p (Holm)
    ---------------  ----------  ---------------  --------
    borda                 −6.70  −10.00 to −3.00    <0.001
    """
    tests = result["tests"]
    if not tests:
        return ""
    metric = tests[0]["metric"]
    rows = [
        [
            row["a"],
            percent(row["difference"], signed=True),
            f"{percent(row['low'], signed=True)} to {percent(row['high'], signed=True)}",
            p_value(row["p_t_holm"]),
        ]
        for row in tests
        if row["metric"] == metric
    ]
    return render_table([f"{metric} against {result['baseline']}", "difference", "95% interval", "p (Holm)"], rows)


def counted_by(protocol: str) -> str:
    """The line under a table of metrics that names the protocol.

    >>> counted_by("trec")
    'percent, trec protocol'
    """
    return f"percent, {protocol} protocol"


def _chosen(chosen: Mapping[str, Any]) -> list[str]:
    """The settings chosen on the validation queries of each fold, a line per model and setting."""
    lines = [
        f"{model} {key}: " + ", ".join(printable(fold[key]) for fold in folds)
        for model, folds in chosen.items()
        for key in folds[0]
        if key != "fold"
    ]
    return ["", "chosen on the validation queries of each fold", *lines] if lines else []


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and number(value) != number(value)):
        return NOTHING
    return printable(value)


def learned_text(model: str, params: Mapping[str, np.ndarray], experts: Sequence[str], columns: Sequence[str]) -> str:
    """Params named expert_* (a row for each expert) as tables, the heaviest expert first; ``columns`` name weights.

    >>> print(learned_text("theta_mpm", {"expert_theta": np.array([0.5, 1.0])}, ["bing", "duck"], ()))
    theta_mpm: learned
    expert  theta
    ------  -----  --------------------
    duck    1.000  ####################
    bing    0.500  ##########
    """
    by_expert = {n: v for n, v in params.items() if n.startswith("expert_") and len(v) == len(experts)}
    others = [
        f"{name} = {value.item():.6g}" if value.size == 1 else f"{name}: {' x '.join(map(str, value.shape))} numbers"
        for name, value in params.items()
        if name not in by_expert
    ]
    said = ", ".join(others) or ("learned" if params else "nothing to learn")
    tables = [_weights(name, values.reshape(len(experts), -1), experts, columns) for name, values in by_expert.items()]
    return "\n".join([f"{model}: {said}", *tables])


def import_text(name: str, plan: Mapping[str, Any]) -> str:
    """The plan of an import, as ``distagg plan`` makes it."""
    rounds = [
        [row["round"], f"{row['tasks']:,}", f"{row['seconds_of_a_task']:.2f}", seconds(row["seconds"])]
        + [size(row[side]) for side in ("read", "written")]
        for row in plan["rounds"]
    ]
    table = render_table(["round", "tasks", "s a task", "time", "read", "written"], rounds, "lrrrrr")
    needed = [size(plan[f"memory_of_{who}"]) for who in ("a_worker", "the_driver")]
    facts = [
        ["rows", f"{plan['rows']:,}, {size(plan['text'])} of text"],
        ["workers", f"{plan['workers']:,}"],
        ["time", f"{seconds(plan['seconds'])}, without the start of the cluster"],
        ["exchanged", f"{size(plan['exchanged'])}: sorted runs, written and read"],
        ["storage", f"{size(plan['storage_a_second'])} a second are read and written in this time"],
        ["files", f"{plan['files']:,} of {size(plan['dataset'])}, and {plan['staging_files']:,} until the end"],
        ["memory", f"{needed[0]} a worker, {needed[1]} the driver, for {plan['names']:,} names"],
        *([what, f"busy for {seconds(value)}"] for what, value in plan["busy"].items() if value),
        ["bottleneck", plan["bottleneck"]],
    ]
    return f"{name}, import\n{table}\n\n{render_table(['on paper', ''], facts, 'll')}"


def reliability_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The worth of experts, most reliable first, with 95% intervals and the votes that it rests on.

    >>> row = {"expert": "ann", "reliability": 0.9, "error": 0.05, "low": 0.8, "high": 1.0, "votes": 40}
    >>> print(reliability_text([row]))
    expert  reliability  error  95% interval  votes
    ------  -----------  -----  ------------  -----
    ann           0.900  0.050  0.80 to 1.00     40
    """
    if not rows:
        return ""
    heads = [*(name for name in rows[0] if name not in ("low", "high"))]
    heads.insert(3, "95% interval")
    body = [[_reliability(row, name) for name in heads] for row in rows[:_EXPERTS]]
    more = [f"... and {len(rows) - _EXPERTS:,} experts more"] if len(rows) > _EXPERTS else []
    return "\n".join([render_table([head.replace("_", " ") for head in heads], body), *more])


def _reliability(row: Mapping[str, Any], name: str) -> str:
    if name == "95% interval":
        return NOTHING if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}"
    if name in ("expert", "votes"):
        return str(row[name])
    return NOTHING if row[name] is None else f"{row[name]:.3f}"


def _weights(name: str, values: np.ndarray, experts: Sequence[str], columns: Sequence[str]) -> str:
    width = min(values.shape[1], _WEIGHTS)
    plain = values.shape[1] == 1
    order = np.argsort(-(values[:, 0] if plain else np.abs(values).sum(axis=1)), kind="stable")
    top = float(np.abs(values).max(initial=0.0)) or 1.0
    rows = [
        [experts[at], f"{values[at, 0]:.3f}", "#" * round(_BAR * max(float(values[at, 0]), 0.0) / top)]
        if plain
        else [experts[at], *(f"{value:.2f}" for value in values[at, :width])]
        for at in order[:_EXPERTS]
    ]
    names = [name.removeprefix("expert_"), ""] if plain else list(columns[:width]) or [str(n) for n in range(width)]
    left = [f"{len(order) - _EXPERTS:,} experts"] if len(order) > _EXPERTS else []
    left += [f"{values.shape[1] - width:,} weights of each"] if values.shape[1] > width else []
    more = [f"... and {' and '.join(left)} more; --json prints all"] if left else []
    return "\n".join([render_table(["expert", *names], rows, "lrl" if plain else "l" + "r" * width), *more])
