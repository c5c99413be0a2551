"""kemeny against BioConsert of corankco on synthetic lists: queries a second, distance reached, share proved.

    python jobs/bench/kemeny.py --peers-python .venv-peers/bin/python [--quick] [--json]

Both minimise the same plain Kemeny distance (unlisted items last, ties free), and both orders are judged here, pair by
pair, not by what their makers say; pairs that a consensus ties count as the cheaper of the two orders. Ours counts from
opening the dataset on disk, theirs from Python lists in memory; both are compiled. Turns alternate.
Goal: a mean distance no larger, 20 times as fast. As it does not always give the best of its own local optima (see
peers/bioconsert.py), these are judged as well, and the goal is about them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from contest import Spread
from goals import print_table
from lists import DATASET, make_dataset

from distagg.dataset import Chunk, Dataset
from distagg.models import model_named
from distagg.sources.synthetic import SyntheticSource

GOAL = 20.0
EFFORTS = (200, 0, 2000)  # the default first: it is what the goal is about
BEST = "bioconsert, best optimum"
PEER = Path(__file__).parent / "peers" / "bioconsert.py"
SHAPES = {"mq2008": 400, "mq2007": 300}
QUICK = {"mq2008": 30}


def lists_of(chunk: Chunk, q: int) -> list[list[int]]:
    spans = chunk.entry_offsets[chunk.list_offsets[q] : chunk.list_offsets[q + 1] + 1]
    return [chunk.entry_item[a:b].tolist() for a, b in itertools.pairwise(spans)]


def distance(size: int, lists: list[list[int]], place: np.ndarray) -> float:
    """Discordant pairs; where the order ties two items, those of the cheaper order of the two."""
    over = np.zeros((size, size))
    for items in lists:
        position = np.full(size, size)
        position[items] = np.arange(len(items))
        over += position[:, None] < position[None, :]
    i, j = np.triu_indices(size, 1)
    cheaper = np.minimum(over[i, j], over[j, i])
    return float(np.select([place[i] < place[j], place[i] > place[j]], [over[j, i], over[i, j]], cheaper).sum())


def ours(folder: Path, effort: int) -> tuple[float, list[Any]]:
    """Seconds from the files to scores, and the outcomes."""
    model = model_named("kemeny", {"effort": effort})
    start = time.perf_counter()
    outcomes = [model.solve(chunk, {}) for chunk in Dataset.open(folder / DATASET).chunks()]
    return time.perf_counter() - start, outcomes


def contest(shape: str, queries: int, python: str, rounds: int, folder: Path) -> list[dict[str, Any]]:
    dataset = make_dataset(folder, SyntheticSource(queries, shape=shape, seed=11))
    chunks = list(dataset.chunks())
    data = [
        {"size": int(size), "lists": lists_of(chunk, q)}
        for chunk in chunks
        for q, size in enumerate(np.diff(chunk.item_offsets))
    ]
    (folder / "lists.json").write_text(json.dumps(data))
    command = [python, str(PEER), str(folder / "lists.json"), str(folder / "orders.json")]
    seconds: dict[str, list[float]] = {f"kemeny effort={effort}": [] for effort in EFFORTS}
    seconds["bioconsert"] = []
    places, proved = {}, {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        for turn in range(-1, rounds):
            for effort in EFFORTS:
                took, outcomes = ours(folder, effort)
                name = f"kemeny effort={effort}"
                if turn < 0:  # compiles
                    places[name] = split(chunks, outcomes)
                    proved[name] = float(np.concatenate([o.queries["exact"] for o in outcomes]).mean())
                else:
                    seconds[name].append(took)
            if turn >= 0:
                print("go", file=peer.stdin, flush=True)
                seconds["bioconsert"].append(float(peer.stdout.readline()))
        peer.stdin.close()
    optima = json.loads((folder / "orders.json").read_text())
    places["bioconsert"] = [np.array(answers[0]) for answers in optima]
    rows = [
        {
            "data": shape,
            "who": name,
            "queries": len(data),
            "seconds": Spread.of(took),
            "distances": [distance(q["size"], q["lists"], p) for q, p in zip(data, places[name], strict=True)],
            "proved": proved.get(name),
        }
        for name, took in seconds.items()
    ]
    best = [
        min(distance(query["size"], query["lists"], np.array(place)) for place in answers)
        for query, answers in zip(data, optima, strict=True)
    ]
    return [*rows, {**rows[-1], "who": BEST, "distances": best}]


def split(chunks: list[Chunk], outcomes: list[Any]) -> list[np.ndarray]:
    pairs = zip(chunks, outcomes, strict=True)
    return [-score for chunk, o in pairs for score in np.split(o.score, chunk.item_offsets[1:-1])]


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line for each contestant, with its speed and distance against the peer's."""
    lines = []
    for row in rows:
        peer = next(r for r in rows if r["who"] == BEST and r["data"] == row["data"])
        rate = [row["queries"] / s for s in (row["seconds"].median, row["seconds"].most, row["seconds"].least)]
        mine, theirs = np.array(row["distances"]), np.array(peer["distances"])
        ratio, mean = peer["seconds"].median / row["seconds"].median, float(mine.mean())
        met = ratio >= GOAL and mean <= theirs.mean()
        lines.append(
            {
                "verdict": "" if "bioconsert" in row["who"] else "met" if met else "MISSED",
                "data": row["data"], "who": row["who"],
                "faster": ratio, "queries_per_second": rate[0], "least": rate[1], "most": rate[2],
                "mean_distance": mean, "nearer": int((mine < theirs).sum()), "farther": int((mine > theirs).sum()),
                "queries": row["queries"], "proved": row["proved"],
            }
        )  # fmt: skip
    return sorted(lines, key=lambda line: ("MISSED", "met", "").index(line["verdict"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers-python", default=os.environ.get("DISTAGG_PEERS_PYTHON", ".venv-peers/bin/python"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few queries: does it run")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for shape, queries in (QUICK if options.quick else SHAPES).items():
            rounds = 1 if options.quick else options.rounds
            rows += contest(shape, queries, options.peers_python, rounds, Path(folder) / shape)
    lines = table(rows)
    if options.json:
        print(json.dumps(lines, indent=1))
    else:
        head = ["", "data", "who", "faster", "queries/s (least-most)", "mean distance", "nearer/farther", "proved"]
        print(
            f"goal: {GOAL:g} times as fast at no larger a mean distance; nearer/farther than its best optimum, queries"
        )
        cells = [
            [
                line["verdict"],
                line["data"],
                line["who"],
                f"{line['faster']:.1f}x",
                f"{line['queries_per_second']:,.0f} ({line['least']:,.0f}-{line['most']:,.0f})",
                f"{line['mean_distance']:,.2f}",
                f"{line['nearer']}/{line['farther']} of {line['queries']}",
                "-" if line["proved"] is None else f"{line['proved']:.1%}",
            ]
            for line in lines
        ]
        print_table(head, cells)
    return 0 if all(line["verdict"] != "MISSED" or line["who"] != "kemeny effort=200" for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
