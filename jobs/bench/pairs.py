"""bradley_terry on many raw pairs against choix, evalica, scikit-learn and crowd-kit: speed, memory, answers.

    python jobs/bench/pairs.py --peers-python .venv-peers/bin/python [--quick] [--json]

Maximum likelihood without a prior, from arrays of winners and losers (int32), building what each library wants counted.
Every fit is a process of its own, after compiling and importing; contestants take turns. ``gradient`` is the largest
gradient entry of the log likelihood at the answer, for each comparison of its item: below 1e-5 counts as the same
answer. Goals: ahead of the fastest such peer, 5 times at the larger size, with a peak below 1,000 MB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from contest import Spread
from goals import print_table

SCRIPT = Path(__file__).parent / "peers" / "pairs.py"
CLOSE = 1e-5
PEAK_MB = 1000.0


@dataclass(frozen=True)
class Size:
    """A problem, who takes part, and how many times faster we want to be than the fastest peer that solves it."""

    items: int
    pairs: int
    goal: float
    rounds: int
    contestants: tuple[str, ...]


OURS = ("ours", "ours, with import")
FULL = (
    Size(1000, 1_000_000, 1.0, 5, (*OURS, "choix", "evalica", "sklearn", "crowd-kit")),
    Size(10_000, 10_000_000, 5.0, 3, (*OURS, "evalica", "sklearn")),  # a dense 10,000 x 10,000 is not for choix
)
QUICK = (Size(100, 20_000, 1.0, 1, (*OURS, "choix", "evalica", "sklearn", "crowd-kit")),)


@dataclass
class Contestant:
    """What one contestant's processes measured."""

    name: str
    seconds: list[float] = field(default_factory=list)
    built: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    before_mb: float = 0.0
    gradient: float = np.inf

    def run(self, python: str, folder: Path) -> None:
        out = folder / "score.npy"
        done = subprocess.run(
            [python, str(SCRIPT), self.name, str(folder), str(out)], stdout=subprocess.PIPE, text=True, check=True
        )
        found = json.loads(done.stdout.splitlines()[-1])
        self.seconds.append(found["seconds"])
        self.built.append(found["built"])
        self.peak_mb, self.before_mb = max(self.peak_mb, found["peak_mb"]), found["before_mb"]
        self.gradient = gradient(np.load(out), np.load(folder / "winner.npy"), np.load(folder / "loser.npy"))


def make(folder: Path, size: Size, seed: int) -> None:
    """Pairs of a planted truth: strengths exp(N(0, 1)), opponents drawn evenly."""
    draw = np.random.default_rng(seed)
    truth = draw.normal(size=size.items)
    one = draw.integers(0, size.items, size.pairs, dtype=np.int32)
    two = (one + draw.integers(1, size.items, size.pairs, dtype=np.int32)) % np.int32(size.items)
    first = draw.random(size.pairs) < 1 / (1 + np.exp(truth[two] - truth[one]))
    folder.mkdir(parents=True)
    np.save(folder / "winner.npy", np.where(first, one, two).astype(np.int32))
    np.save(folder / "loser.npy", np.where(first, two, one).astype(np.int32))
    (folder / "size.txt").write_text(str(size.items))


def gradient(score: np.ndarray, winner: np.ndarray, loser: np.ndarray) -> float:
    """The largest gradient entry, for each comparison of its item."""
    surprise = 1 / (1 + np.exp(score[winner] - score[loser]))
    slope = np.bincount(winner, surprise, len(score)) - np.bincount(loser, surprise, len(score))
    return float(np.max(np.abs(slope) / (np.bincount(winner, None, len(score)) + np.bincount(loser, None, len(score)))))


def measure(sizes: tuple[Size, ...], python: str, seed: int) -> list[dict[str, Any]]:
    results = []
    with tempfile.TemporaryDirectory(prefix="distagg-pairs-") as root:
        for size in sizes:
            folder = Path(root) / str(size.items)
            make(folder, size, seed)
            players = [Contestant(name) for name in size.contestants]
            for turn in range(size.rounds):
                for one in players:
                    print(f"{size.items:,} items, turn {turn + 1}: {one.name}", file=sys.stderr, flush=True)
                    one.run(sys.executable if one.name in OURS else python, folder)
            results.append(_compared(size, players))
    return results


def _compared(size: Size, players: list[Contestant]) -> dict[str, Any]:
    mine = players[0]
    own = Spread.of(mine.seconds).median
    rows = []
    for one in players:
        spread = Spread.of(one.seconds)
        rows.append(
            {
                "name": one.name, "median": spread.median, "least": spread.least, "most": spread.most,
                "built": float(np.median(one.built)), "peak_mb": one.peak_mb, "before_mb": one.before_mb,
                "gradient": one.gradient, "ratio": spread.median / own, "solved": one.gradient < CLOSE,
            }
        )  # fmt: skip
    peers = [row for row in rows if row["name"] not in OURS and row["solved"]]
    fastest = min(row["ratio"] for row in peers)
    return {
        "items": size.items,
        "pairs": size.pairs,
        "goal": size.goal,
        "rounds": size.rounds,
        "fastest_peer": fastest,
        "rows": rows,
        "met": fastest >= size.goal and mine.peak_mb < PEAK_MB and mine.gradient < CLOSE,
    }


def print_results(results: list[dict[str, Any]]) -> None:
    """Sizes whose goal was missed first."""
    for result in sorted(results, key=lambda result: result["met"]):
        verdict = "met" if result["met"] else "MISSED"
        print(
            f"\n{result['items']:,} items, {result['pairs']:,} pairs: {verdict}; the fastest peer that solves it takes "
            f"{result['fastest_peer']:.1f} times as long as ours, the goal is {result['goal']:g}"
        )
        cells = [
            [
                row["name"],
                f"{row['median']:.3f} ({row['least']:.3f}-{row['most']:.3f})",
                f"{row['built']:.3f}",
                f"{row['ratio']:.1f}x",
                f"{row['peak_mb']:,.0f} ({row['before_mb']:,.0f} before)",
                f"{row['gradient']:.0e}" + ("" if row["solved"] else " UNSOLVED"),
            ]
            for row in sorted(result["rows"], key=lambda row: row["median"])
        ]
        head = ["", "seconds, median (least-most)", "of that building", "of ours", "peak MB", "gradient"]
        print_table(head, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers-python", required=True, help="an interpreter with choix, evalica, sklearn, crowd-kit")
    parser.add_argument("--quick", action="store_true", help="small data, one turn: does it run, do answers agree")
    parser.add_argument("--rounds", type=int, help="turns of every contestant, instead of 5 and 3")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print everything measured as JSON")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else FULL
    if arguments.rounds:
        sizes = tuple(replace(size, rounds=arguments.rounds) for size in sizes)
    results = measure(sizes, arguments.peers_python, arguments.seed)
    if arguments.json:
        print(json.dumps({"sizes": results}))
    else:
        print_results(results)
    sys.exit(0 if arguments.quick or all(result["met"] for result in results) else 1)


if __name__ == "__main__":
    main()
