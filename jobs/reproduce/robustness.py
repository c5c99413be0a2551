"""Paper 004, section 5.3: how models do with 5, 10, 15 and 20 of the experts, drawn at random 20 times; a picture.

    python jobs/reproduce/robustness.py --mq2008 mq2008 --mq2007 mq2007 [--models borda,rrf] [--svg robustness.svg]

A draw is of experts of the whole set, the same for all queries and models. NDCG@5 by the LETOR protocol, over all
queries (items that are then in no list stay), the mean of the five parts. Printed: mean and standard deviation over
draws, in percent. Models are taken with their defaults; those that learn take no part.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from distagg.dataset import Dataset
from distagg.dataset.chunk import Chunk
from distagg.errors import DistaggError, UsageError
from distagg.metrics import parse_metrics, score_chunk
from distagg.models import Model, model_named
from distagg.reports.markup import Child, Markup, coordinate, element
from distagg.reports.terminal import render_table
from distagg.types import OFFSET

SIZES, DRAWS = (5, 10, 15, 20), 20
MODELS = "mc4,svp,plackett_luce,mpm,borda,rrf,stagg_bc,stagg_rrf"
PANEL, HEIGHT, LEFT, LABELS = 330.0, 300.0, 34.0, 96.0
COLOURS = ("#2f6690", "#a84b16", "#57626b", "#7a5195", "#3f7d4e", "#b08900", "#8c564b", "#9aa5ad")
STYLE = """text{font:12px system-ui,sans-serif;fill:#1c2227}.tick{font-size:11px;fill:#57626b}.axis{stroke:#57626b}
@media (prefers-color-scheme:dark){text{fill:#e6e9eb}.tick{fill:#a0abb4}}"""


def of_experts(chunk: Chunk, chosen: np.ndarray) -> Chunk:
    """The chunk with the lists of those experts only."""
    kept = np.isin(chunk.list_expert, chosen)
    length = np.diff(chunk.entry_offsets)
    entries = np.repeat(kept, length)
    before = np.concatenate([[0], np.cumsum(kept)])
    return replace(
        chunk,
        list_offsets=before[chunk.list_offsets].astype(OFFSET),
        list_expert=chunk.list_expert[kept],
        entry_offsets=np.concatenate([[0], np.cumsum(length[kept])]).astype(OFFSET),
        entry_item=chunk.entry_item[entries],
        entry_rank=chunk.entry_rank[entries],
        entry_score=chunk.entry_score[entries] if len(chunk.entry_score) else chunk.entry_score,
    )


def value(model: Model, chunks: Sequence[Chunk]) -> float:
    """Mean NDCG@5 of each part, then of the parts, in percent."""
    found = np.concatenate([score_chunk(c, model.score(c, {}), parse_metrics(["ndcg@5"]))[:, 0] for c in chunks])
    parts = np.concatenate([c.parts.to_numpy(zero_copy_only=False) for c in chunks])
    return float(100.0 * np.mean([found[parts == part].mean() for part in np.unique(parts)]))


def measure(dataset: Dataset, models: Sequence[Model], draws: int, seed: int) -> dict[str, list[list[float]]]:
    """For every model, by number of experts, its figure in every draw."""
    chunks, experts = list(dataset.chunks(ids=False)), len(dataset.experts)
    found: dict[str, list[list[float]]] = {model.name: [[] for _ in SIZES] for model in models}
    for n, size in enumerate(SIZES):
        if size > experts:
            raise UsageError(f"{size} experts are wanted, and {dataset.path} has {experts}")
        for draw in range(draws):
            random = np.random.default_rng(np.random.SeedSequence([seed, size, draw]))
            chosen = random.choice(experts, size, replace=False)
            some = [of_experts(chunk, chosen) for chunk in chunks]
            for model in models:
                found[model.name][n].append(value(model, some))
        print(f"{size} experts done", file=sys.stderr, flush=True)
    return found


def panel(title: str, found: dict[str, list[list[float]]], across: float) -> list[Child]:
    """Lines of means over draws; names at the right end, moved apart where they would meet."""
    means = {name: [float(np.mean(values)) for values in rows] for name, rows in found.items()}
    low, high = (end(mean for row in means.values() for mean in row) for end in (min, max))
    top, bottom, left, right = 34.0, HEIGHT - 34.0, across + LEFT, across + PANEL - LABELS

    def x(n: int) -> float:
        return left + 10.0 + (right - left - 20.0) * n / (len(SIZES) - 1)

    def y(value: float) -> float:
        return bottom - (bottom - top) * (value - low) / ((high - low) or 1.0)

    drawn: list[Child] = [element("text", title, x=left, y=16, font_weight="600")]
    drawn.append(element("line", class_="axis", x1=left, x2=right, y1=bottom, y2=bottom))
    drawn += [
        element("text", str(size), class_="tick", x=x(n), y=bottom + 16, text_anchor="middle")
        for n, size in enumerate(SIZES)
    ]
    drawn.append(element("text", "experts", class_="tick", x=(left + right) / 2, y=bottom + 30, text_anchor="middle"))
    drawn += [
        element("text", str(tick), class_="tick", x=left - 6, y=y(tick) + 4, text_anchor="end")
        for tick in range(int(np.ceil(low)), int(high) + 1, max(round((high - low) / 6), 1))
    ]
    above = -np.inf
    ordered = sorted(found, key=lambda name: (not name.startswith("stagg"), name))  # these take the first colours
    for name in sorted(found, key=lambda name: -means[name][-1]):
        colour, wide = COLOURS[ordered.index(name) % len(COLOURS)], 2.4 if name.startswith("stagg") else 1.2
        points = " ".join(f"{coordinate(x(n))},{coordinate(y(mean))}" for n, mean in enumerate(means[name]))
        drawn.append(element("polyline", points=points, fill="none", stroke=colour, stroke_width=wide))
        above = max(y(means[name][-1]) + 4.0, above + 13.0)
        drawn.append(element("text", name, x=right + 6, y=above, style=f"fill:{colour}"))
    return drawn


def picture(found: dict[str, dict[str, list[list[float]]]]) -> Markup:
    """A panel for each dataset, side by side."""
    drawn: list[Child] = [element("title", "NDCG@5 by number of experts"), element("style", Markup(STYLE))]
    for n, (data, values) in enumerate(found.items()):
        drawn += panel(f"{data}, NDCG@5, mean of draws", values, n * PANEL)
    box = f"0 0 {coordinate(PANEL * len(found))} {coordinate(HEIGHT)}"
    return element("svg", *drawn, xmlns="http://www.w3.org/2000/svg", viewBox=box, role="img")


def table(found: dict[str, dict[str, list[list[float]]]]) -> str:
    rows = [
        [data, name, *(f"{np.mean(v):.2f} ({np.std(v, ddof=1):.2f})" for v in by_size)]
        for data, values in found.items()
        for name, by_size in sorted(values.items(), key=lambda row: -float(np.mean(row[1])))
    ]
    return render_table(["data", "model", *(f"{size} experts" for size in SIZES)], rows, "ll" + "r" * len(SIZES))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for data in ("mq2008", "mq2007"):
        parser.add_argument(f"--{data}", metavar="DATASET", help=f"the imported {data.upper()}-agg")
    parser.add_argument("--models", default=MODELS, help="by commas (default: %(default)s)")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--svg", metavar="FILE", help="where the picture goes")
    parser.add_argument("--json", metavar="FILE", help="write every figure there as well")
    given = parser.parse_args(arguments)
    datasets = {data: getattr(given, data) for data in ("mq2008", "mq2007") if getattr(given, data)}
    if not datasets or given.draws < 2:
        parser.error("give --mq2008, --mq2007 or both, and two draws or more")
    found: dict[str, Any] = {}
    try:
        models = [model_named(name) for name in given.models.split(",")]
        for model in models:
            if model.learns:
                raise UsageError(f"{model.name} is trained; only models that learn nothing are compared here")
        for data, path in datasets.items():
            found[data] = measure(Dataset.open(path), models, given.draws, given.seed)
    except DistaggError as error:
        print(f"robustness: {error}", file=sys.stderr)
        return error.exit_code
    print(table(found))
    if given.svg:
        Path(given.svg).write_text(picture(found) + "\n", encoding="utf-8")
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
