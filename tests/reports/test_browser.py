"""Reports in a real browser: nothing asked of the network, no complaint, everything in sight on phone and desk."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distagg.reports import board_charts, charts, compare_report, consensus_report, curves, dataset_report
from distagg.reports.board_page import board_report
from distagg.reports.experts_page import experts_report, explanation_report
from distagg.reports.html import figure, page, section
from distagg.reports.run_page import run_report
from tests.reports.browser import Browser, chromium
from tests.reports.made_up import comparison, dataset_info

WIDTHS = (390, 1280)
SMALLEST = 9.0  # pixels of text in a picture
MODELS = ["borda", "rrf", "crf", "bradley_terry", "theta_sup_mpm", "a_model_with_quite_a_long_name"]

# What is wrong with a page as it is drawn, as lines of text.
LOOK = """(() => {
  const wrong = [], root = document.documentElement, wide = root.clientWidth;
  if (root.scrollWidth > wide) wrong.push(`the page is ${root.scrollWidth} px wide in ${wide}`);
  if (document.body.innerText.includes('\\ufffd')) wrong.push('a character that cannot be shown');
  const name = one => one.getAttribute('aria-label') || one.textContent.slice(0, 30);
  for (const one of document.querySelectorAll('table, svg, h1, h2, p, dl, pre')) {
    const box = one.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) wrong.push(`${one.tagName} ${name(one)} has no size`);
    if (one.tagName != 'TABLE' && box.right > wide + 1) wrong.push(`${one.tagName} ${name(one)} ends at ${box.right}`);
  }
  for (const cell of document.querySelectorAll('tr > :first-child'))
    if (cell.scrollWidth > cell.clientWidth + 1) wrong.push(`cell ${name(cell)} is cut off`);
  for (const table of document.querySelectorAll('.scroll')) {
    table.scrollLeft = 9999;
    const left = table.getBoundingClientRect().left;
    for (const cell of table.querySelectorAll('tr > th:first-child'))
      if (cell.getBoundingClientRect().left > left + 3 || cell.getBoundingClientRect().left < left - 3)
        wrong.push(`cell ${name(cell)} scrolls away`);
    table.scrollLeft = 0;
  }
  for (const svg of document.querySelectorAll('svg')) {
    const edge = svg.getBoundingClientRect(), scale = edge.width / svg.viewBox.baseVal.width;
    const texts = [...svg.querySelectorAll('text')].filter(one => one.textContent.trim());
    const boxes = texts.map(one => one.getBoundingClientRect());
    texts.forEach((one, n) => {
      const box = boxes[n], said = `${name(svg)}: '${one.textContent}'`;
      const inside = box.left >= edge.left - 2 && box.right <= edge.right + 2;
      if (!inside || box.top < edge.top - 3 || box.bottom > edge.bottom + 3)
        wrong.push(`${said} is cut off`);
      const size = parseFloat(getComputedStyle(one).fontSize) * scale;
      if (size < SMALLEST) wrong.push(`${said} is ${size.toFixed(1)} px`);
      if (one.getAttribute('transform')) return;
      for (let m = 0; m < n; m++) {
        if (texts[m].getAttribute('transform')) continue;
        const other = boxes[m];
        const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        if (across > 1 && down > 0.35 * box.height) wrong.push(`${said} lies on '${texts[m].textContent}'`);
      }
    });
  }
  return wrong;
})()""".replace("SMALLEST", str(SMALLEST))


def compared(models: list[str] = MODELS) -> str:
    return compare_report(comparison(models, ["ndcg@5", "ndcg@10", "map"]) | {"dataset": dataset_info()})


def compared_without_long_names() -> str:
    return compared(MODELS[:5])  # wide letters, where no longer name makes room


def changed() -> dict[str, Any]:
    """What a run says of the run before it."""
    draw = np.random.default_rng(3)
    movers = [{"query": f"q{n}", "item": f"doc-{n}", "before": n + 3, "now": n} for n in range(1, 6)]
    ranking = {
        "queries": {"same": 700, "changed": 80, "new": 3, "vanished": 1},
        "items": {"moved": 900, "new": 5, "vanished": 0},
        "another on top": 17, "tau": 0.9312, "overlap@10": 0.95, "movers": movers, "new": ["q99"], "vanished": [],
        "dots": draw.integers(1, 120, (200, 2)).tolist(), "least alike": [{"query": "q7", "tau": -0.2}],
    }  # fmt: skip
    metrics = {"checked": {"crf": {"ndcg@5": {"before": 0.5, "now": 0.51}}}}
    return {"before": "07db73205500", "rankings": {"ranked": ranking}, "metrics": metrics, "models": {}}


def scaled() -> dict[str, Any]:
    """What a scale step finds."""

    def runs(keys: list[int], falls: bool) -> dict[str, list[dict[str, float]]]:
        times = {key: (0.8 / key if falls else 1e-4 * key) + 0.05 for key in keys}
        parts = {"compute": 0.6, "read": 0.3, "coordination": 0.1}
        return {str(k): [{"seconds": t, **{name: t * x for name, x in parts.items()}}] * 3 for k, t in times.items()}

    law = {"rate": 5e7, "serial": 0.02, "talk": 1e-4, "peak": 120.0, "peak_interval": [107.0, 131.0]}
    law["intervals"] = {name: (0.5 * law[name], 2.0 * law[name]) for name in ("rate", "serial", "talk")}
    return {
        "model": "rrf", "entries": 133_048, "queries": 784, "round": {"rounds": [5.0, 22.0], "naive": [90.0, 120.0]},
        "strong": runs([1, 2, 4], True), "weak": runs([1, 2, 4], False), "experts": runs([1, 2, 4, 8], False),
        "items": runs([1, 2, 4, 8], False), "chunk": runs([16384, 262144, 1048576], False),
        "simulated": {"1048576": runs([10, 100, 1000], True)}, "simulated_entries": 10**9, "laws": {"strong": law},
    }  # fmt: skip


def trained() -> dict[str, Any]:
    """The weights and the learning curve of a model."""
    weights = {"columns": ["missing", "log won"], "rows": {f"engine-{n}": [0.1 * n, -0.5] for n in range(12)}}
    values = (0.5 - 0.2 / np.arange(1, 90) ** 0.5 + 0.004 * np.sin(np.arange(1, 90))).tolist()
    return {"weights": weights, "curve": {"values": values, "kept": 71, "start": 0.31}}


def ran() -> str:
    items = [{"item": f"doc-{n}", "rank": n, "score": 1 / n, "label": n % 3} for n in range(1, 14)]
    return run_report(
        {
            "name": "nightly",
            "state": "finished",
            "drivers": 2,
            "notes": ["mpm: 3 of 12 queries did not converge"],
            "steps": [
                {"step": "data", "do": "import", "state": "done", "seconds": 3.25},
                {"step": "ranked", "do": "rank", "state": "done", "seconds": 120.5, "parts": "12 of 12"},
            ],
            "figures": {"checked": {"crf": {"ndcg@5": 0.51, "map": 0.50, "err": 0.3, "p@5": 0.4}}},
            "rankings": [{"query": f"q{n}", "model": "crf", "items": items} for n in range(4)],
            "job": {"name": "nightly", "steps": {"data": {"do": "import", "files": ["/data/" + "long/" * 30]}}},
            "changes": changed(),
            "models": {"fitted": {"model": "crf", "goal": "map", **trained()}},
            "scaling": {"scaled": scaled()},
            "environment": {"python": "3.11"},
            "events": [{"event": "began", "at": n} for n in range(20)],
        }
    )


def consensus() -> str:
    draw = np.random.default_rng(0)
    support = draw.integers(1, 500, 300)
    ends = [
        {"rank": n, "title": f"A movie with a title that goes on ({n})", "experts": 583, "won": 49290, "lost": 10112}
        for n in range(1, 11)
    ]
    return consensus_report(
        {
            "title": "out/top.csv",
            "ends": {"mpm": {"top": ends, "bottom": ends}},
            "variance": {
                "support": support.tolist(),
                "rank": draw.permutation(300).tolist(),
                "uncertainty": (2 / np.sqrt(support)).tolist(),
            },
        }
    )


def judged() -> str:
    draw = np.random.default_rng(1)
    names = [f"engine-{n}" for n in range(25)]
    rows = [
        {
            "expert": name,
            "verdict": ("useful", "unused", "inverted")[n % 3],
            "order": float(draw.normal()),
            "listed": float(draw.normal()),
            "queries": 784,
            "loss": 0.01,
            "error": 0.002,
        }
        for n, name in enumerate(names)
    ]
    heads = ["missing", "log won", "log lost", "reciprocal"]
    weights = {"columns": heads, "rows": {name: draw.normal(size=4).tolist() for name in names}}
    return experts_report({"model": "crf", "data": "mq2008", "goal": "map", "experts": rows, "weights": weights})


def explained() -> str:
    draw = np.random.default_rng(2)
    names = [f"engine-{n}" for n in range(21)]
    items = [
        {
            "item": f"GX{n:03}-00-0000000",
            "rank": n,
            "label": n % 3,
            "consensus": 30 - n,
            "score": float(draw.normal()),
            "ranks": dict.fromkeys(names[: n % 20], n),
            "lifts": {name: float(draw.normal()) for name in names},
        }
        for n in range(1, 30)
    ]
    result = {"query": "10002", "model": "crf", "consensus": "rrf", "items": items, "experts": names, "exact": True}
    return explanation_report([result])


def described() -> str:
    return dataset_report(dataset_info())


def boarded() -> str:
    """Thirty items in two parts that hardly met, an item alone, an infinite interval, and five months."""
    draw = np.random.default_rng(4)
    names = [f"model-{n}" if n % 3 else f"a-model-with-a-long-name-{n}" for n in range(30)]
    items = [
        {
            "rank": n + 1, "item": name, "score": 1200 - 15 * n, "low": 1100 - 15 * n if n else -np.inf,
            "high": 1300 - 15 * n if n else np.inf, "rank_low": max(1, n - 4), "rank_high": min(30, n + 9),
            "group": 1 + n // 6, "battles": 1000.0 / (n + 1), "win_rate": 0.9 - 0.02 * n,
            "status": "ok" if n else "unbeaten",
        }
        for n, name in enumerate(names)
    ]  # fmt: skip
    about = {
        "model": "bradley_terry", "scale": "elo", "anchor": "model-1:1185", "ties": "davidson", "prior": "gaussian",
        "errors": "standard", "level": 0.95, "battles": 123456.0, "reach": 3.6, "left_out": 2,
        "fit": {"converged": True, "weight": 1.2, "tie": 0.4},
    }  # fmt: skip
    links = {
        "components": [names[:29], names[29:]], "pairs": 200, "possible": 435,
        "thinnest": {"items": names[20:29], "battles": 12.0, "share": 0.01},
    }  # fmt: skip
    edges = [
        (a, b, float(draw.integers(1, 90))) for a in range(29) for b in range(a) if (a > 19) == (b > 19) or a == b + 9
    ]
    matrix = [
        [None if 29 in (a, b) and a != b else 1 / (1 + 10 ** ((a - b) / 26)) for b in range(30)] for a in range(30)
    ]
    groups = [names[n : n + 6] for n in range(0, 30, 6)]
    board = {"query": "all", "items": items, "groups": groups, "links": links, "about": about}
    periods = [
        {"period": f"2026-0{n}", "items": [{**row, "score": row["score"] + float(draw.normal(0, 20))} for row in items]}
        for n in range(1, 6)
    ]
    return board_report(
        {"title": "battles", "boards": [board | {"matrix": matrix, "edges": edges}], "periods": periods}
    )


def boarded_small() -> str:
    """Three items: numbers are written into cells; and two boards on one page."""
    names = ["ada", "bert", "cleo"]
    items = [
        {
            "rank": n + 1, "item": name, "score": 0.5 - n / 2, "low": -1.0 - n, "high": 1.0 - n / 3, "rank_low": 1,
            "rank_high": 3, "group": 1, "battles": 9.5, "win_rate": 0.5, "status": "ok",
        }
        for n, name in enumerate(names)
    ]  # fmt: skip
    about = {
        "model": "thurstone", "scale": "plain", "anchor": "", "ties": "half", "prior": "none", "errors": "bootstrap",
        "level": 0.9, "battles": 14.0, "reach": 2.1, "left_out": 0, "fit": {"converged": False},
    }  # fmt: skip
    links = {"components": [names], "pairs": 3, "possible": 3, "thinnest": None}
    board = {"query": "q1", "items": items, "groups": [names], "links": links, "about": about}
    board |= {"matrix": [[0.5, 0.7, 0.99], [0.3, 0.5, 0.6], [0.01, 0.4, 0.5]], "edges": [(0, 1, 5.0), (1, 2, 4.0)]}
    return board_report({"title": "two", "boards": [board, board | {"query": "q2"}]})


PAGES: dict[str, Callable[[], str]] = {
    "board": boarded,
    "two boards": boarded_small,
    "compare": compared,
    "compare, short names": compared_without_long_names,
    "run": ran,
    "dataset": described,
    "consensus": consensus,
    "experts": judged,
    "explain": explained,
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip("no browser: apt-get install chromium")
    with Browser(program, tmp_path_factory.mktemp("profile")) as started:
        yield started


def opened(browser: Browser, html: str, name: str, width: int, folder: Path) -> list[str]:
    """What is wrong with a page at a width; screenshots go to DISTAGG_SCREENSHOTS where that is set."""
    file = folder / f"{name}.html"
    file.write_text(html, encoding="utf-8")
    browser.open(file, width)
    wrong: list[str] = browser.evaluate(LOOK)
    if kept := os.environ.get("DISTAGG_SCREENSHOTS"):
        browser.screenshot(Path(kept) / f"{name}-{width}.png")
    return [*browser.said, *(address for address in browser.asked if address != file.as_uri()), *wrong]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", list(PAGES))
def test_a_report_looks_right(browser: Browser, name: str, width: int, tmp_path: Path) -> None:
    html = PAGES[name]()
    assert opened(browser, html, name, width, tmp_path) == []
    assert browser.evaluate("document.querySelectorAll('table').length") == html.count("<table")
    assert browser.evaluate("document.querySelectorAll('svg').length") == html.count("<svg")


def test_what_looks_wrong_is_noticed(browser: Browser, tmp_path: Path) -> None:
    def found(inside: str) -> str:
        html = page("t", "s", [section("x", "y")]).replace("</main>", inside + "</main>")
        return "\n".join(opened(browser, html, "bad", 390, tmp_path))

    assert not found("")
    assert "the page is" in found('<div style="width:500px">wide</div>')
    assert "cannot be shown" in found("<p>a\ufffdb</p>")
    assert "has no size" in found('<svg viewBox="0 0 9 9" style="width:0"></svg>')
    wide = "<td>" + "wide " * 99
    assert "scrolls away" in found(
        f'<div class="scroll"><table><tr><th style="position:static">a</th>{wide}</table></div>'
    )
    assert "is cut off" in found('<table><tr><th style="overflow:hidden;max-width:9px;white-space:nowrap">name</table>')
    assert "is cut off" in found('<svg viewBox="0 0 360 20"><text x="300" y="15">a long text at the edge</text></svg>')
    assert "lies on" in found(
        '<svg viewBox="0 0 360 20"><text x="9" y="15">one</text><text x="12" y="15">two</text></svg>'
    )
    assert "px" in found('<svg viewBox="0 0 3600 200"><text x="9" y="150">small</text></svg>')
    assert "Content Security Policy" in found('<img src="https://example.invalid/x.png">')


WIDE = ["mmmmwwwwmmmmwwwwmmmm", "WWWW_MMMM_WWWW_MMMM", "theta_sup_mpm", "crf(metric=likelihood, rate=0.25, orders=100)"]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_label_is_cut(browser: Browser, width: int, tmp_path: Path) -> None:
    """However wide or long the names are, each is shown whole."""
    drawn = {
        "bars": charts.bars([charts.Bar(name, 0.5, "50.00", kind="chosen") for name in WIDE], title="b"),
        "hinton": charts.hinton([[1.0, -0.5]] * len(WIDE), WIDE, ["won", "lost"], title="h"),
        "intervals": board_charts.intervals(
            [board_charts.Measured(name, 1000 + n, 900, 1100, "1000") for n, name in enumerate(WIDE)], title="i"
        ),
        "chances": board_charts.chances([[0.5] * len(WIDE)] * len(WIDE), WIDE, title="c"),
        "lines": curves.lines(
            {name: [(1, n), (2, n + 1)] for n, name in enumerate(WIDE)},
            x=curves.Axis("x"),
            y=curves.Axis("y"),
            title="l",
        ),
    }
    html = page("t", "s", [section(name, figure(name, svg)) for name, svg in drawn.items()])
    assert opened(browser, html, "labels", width, tmp_path) == []
    for name, svg in drawn.items():
        shown = "".join(re.sub(r"<title>.*?</title>|<[^>]+>", "", svg).split())
        assert all("".join(label.split()) in shown for label in WIDE), name


def test_the_demo_page(browser: Browser, tmp_path: Path) -> None:
    """As ``distagg demo`` writes it, from a result of all its parts."""
    result: dict[str, Any] = comparison([f"model_{n}" for n in range(32)], ["ndcg@5", "p@5", "map"], queries=60)
    result["adherence"] = {
        "fold": "1",
        "experts": [f"e{n}" for n in range(25)],
        "models": {"theta_mpm": np.linspace(0, 1, 25).tolist(), "theta_sup_mpm": np.linspace(1, 0, 25).tolist()},
    }
    for width in WIDTHS:
        assert opened(browser, compare_report(result), "demo", width, tmp_path) == []
