"""distagg beside its peers on whole jobs: seconds, peak memory, how good the answer is, what goes wrong when it grows.

    python jobs/bench/whole/run.py [--quick] [--only TASK] [--report FILE.html] [--json FILE] [--peers-python PYTHON]

Everybody starts from the same file in a fresh process that imports, reads, computes and writes the answer: what a user
pays, compiling included. ``distagg, compiled before`` has a first run behind it, which kept what it compiled. Turns
alternate; medians, least and most. Memory is the process's peak as the system counts it. Losses stand first.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from capabilities import HEAD, capability_rows
from tasks import TASKS, Size, Task

from distagg.reports.html import page, section, table, write_report
from distagg.reports.terminal import render_table

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from environment import peers_python  # noqa: E402

OURS, CACHED = "distagg", "distagg, compiled before"
ROUNDS, LIMIT, MEMORY_GB = 3, 180.0, 12.0


@dataclass
class Entry:
    """One contestant at one size of a task."""

    task: str
    size: str
    who: str
    seconds: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    wrong: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def turn(entry: Entry, task: Task, folder: Path, python: str) -> None:
    """One fresh process."""
    answer = folder / "answer.parquet"
    answer.unlink(missing_ok=True)
    mine = entry.who in (OURS, CACHED)
    script = [sys.executable, str(HERE / "ours.py")] if mine else [python, str(HERE / "theirs.py"), entry.who]
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    settings |= {"DISTAGG_CACHE_DIR": str(folder.parent / "kernels")} if entry.who == CACHED else {"DISTAGG_CACHE": "0"}
    with (folder / "said.txt").open("w+") as said:
        began = time.perf_counter()
        process = subprocess.Popen(
            [*script, task.name, str(folder), str(answer)], stdout=said, stderr=said, env=settings
        )
        code, peak_mb, why = watch(process)
        seconds = time.perf_counter() - began
        said.seek(0)
        words = [line for line in said.read().splitlines() if line.strip()]
    if code != 0:
        entry.wrong = why or (words[-1][:140] if words else f"ended with code {code}")
        return
    figures = task.judge(folder, answer)
    if not figures[task.good] >= task.least:
        entry.wrong = "not solved"
    entry.seconds.append(seconds)
    entry.peak_mb, entry.figures = max(entry.peak_mb, peak_mb), figures


def watch(process: subprocess.Popen[bytes]) -> tuple[int, float, str]:
    """Wait for a process, and end it when it takes too long or too much: exit code, peak memory, why it was ended."""
    end, why, peak_mb = time.monotonic() + LIMIT, "", 0.0
    while process.poll() is None:
        peak_mb = max(peak_mb, resident_mb(process.pid))
        if not why and time.monotonic() > end:
            why = f"not done after {LIMIT:.0f} s"
            process.kill()
        elif not why and peak_mb > 1000 * MEMORY_GB:
            why = f"needs more than {MEMORY_GB:.0f} GB"
            process.kill()
        time.sleep(0.01)
    return process.returncode, peak_mb, why


def resident_mb(pid: int) -> float:
    """The most memory that a process has had so far; what wait4 tells begins with the memory of who started it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def contest(task: Task, size: Size, rounds: int, python: str, root: Path) -> list[Entry]:
    """Everybody at one size, by turns; who fails is not asked again."""
    folder = root / "input"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    task.make(folder, size)
    words = ", ".join(f"{number:,} {name}" for name, number in size.items())
    entries = [Entry(task.name, words, who) for who in (OURS, CACHED, *task.peers)]
    turn(Entry(task.name, words, CACHED), task, folder, python)  # fills the cache
    for number in range(rounds):
        for entry in entries:
            if not entry.wrong and (number == 0 or sum(entry.seconds) < LIMIT / 2):
                print(f"{task.name}, {words}: {entry.who}, turn {number + 1}", file=sys.stderr, flush=True)
                turn(entry, task, folder, python)
    return entries


def rows(entries: Sequence[Entry]) -> list[list[str]]:
    """A line for each peer beside ours; what we lost first, by how much."""
    by_name = {(entry.task, entry.size, entry.who): entry for entry in entries}
    made = []
    for entry in entries:
        if entry.who in (OURS, CACHED):
            continue
        mine, cached = (by_name[entry.task, entry.size, who] for who in (OURS, CACHED))
        slower = larger = float("inf")
        if not (entry.wrong or mine.wrong):
            slower, larger = entry.median / mine.median, entry.peak_mb / mine.peak_mb
        lost = [word for word, ratio in (("time", slower), ("memory", larger)) if ratio < 1.0]
        cells = [
            f"LOST {' and '.join(lost)}" if lost else "ahead", entry.task, entry.size, entry.who, told(entry),
            told(mine), f"{cached.median:.2f}" if cached.seconds else "-", times(slower), times(larger), figures(entry),
            figures(mine),
        ]  # fmt: skip
        made.append((min(slower, larger), cells))
    return [cells for _, cells in sorted(made, key=lambda pair: pair[0])]


def times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio < float("inf") else "-"


COLUMNS = [
    "", "job", "size", "peer", "peer: s (least-most), MB", "distagg: s, MB", "compiled before, s", "slower", "larger",
    "peer's answer", "ours",
]  # fmt: skip


def told(entry: Entry) -> str:
    if not entry.seconds:
        return entry.wrong
    spread = f"{entry.median:.2f} ({min(entry.seconds):.2f}-{max(entry.seconds):.2f}), {entry.peak_mb:,.0f}"
    return f"{spread}; {entry.wrong}" if entry.wrong else spread


def figures(entry: Entry) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in entry.figures.items()) or "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small data, one turn: does it run, are answers right")
    parser.add_argument("--only", action="append", help="tasks whose name begins so (may be repeated)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of every contestant at the first size")
    parser.add_argument("--report", metavar="FILE.html", help="write a page")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    parser.add_argument("--peers-python", default=os.environ.get("DISTAGG_PEERS_PYTHON"), help="has the peers already")
    given = parser.parse_args()
    python = given.peers_python or peers_python()
    chosen = [t for t in TASKS if not given.only or any(t.name.startswith(name) for name in given.only)]
    entries: list[Entry] = []
    with tempfile.TemporaryDirectory(prefix="distagg-peers-") as root:
        for task in chosen:
            for n, size in enumerate([task.quick] if given.quick else task.sizes):
                entries += contest(task, size, 1 if given.quick or n else given.rounds, python, Path(root))
    print(render_table(COLUMNS, rows(entries), "lllllllrrll"))
    print("\nWho has what")
    print(render_table(HEAD, capability_rows(), "l" * len(HEAD)))
    if given.json:
        given.json.write_text(json.dumps([asdict(entry) for entry in entries], indent=1) + "\n", encoding="utf-8")
    if given.report:
        parts = [
            section(
                "Whole jobs, from a file to an answer",
                table(COLUMNS, rows(entries), label="jobs", left=tuple(range(7))),
            ),
            section("Who has what", table(HEAD, capability_rows(), label="capabilities", left=(0,))),
        ]
        write_report(
            page("distagg and its peers", "the same files, one machine, one run", parts), given.report, overwrite=True
        )
    failed = [entry for entry in entries if entry.who in (OURS, CACHED) and entry.wrong]
    for entry in failed:
        print(f"{entry.who} failed: {entry.task}, {entry.size}: {entry.wrong}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
