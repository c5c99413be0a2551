"""Of ``faults.py``: single bits flipped in files, at rest and while a run goes on. Each is noticed, or harmless.

At rest: a file of a dataset, a model, rankings or a finished run is damaged, and a command that relies on it must give
the bytes that it gives with the whole file, or refuse. Meanwhile: a bit of any file of the run, or of its dataset, is
flipped before one of the driver's moves on the disk; what the dataset lost is put back before the run is resumed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Files that nothing relies on.
IGNORED = ("lease", "events.jsonl", "report.html", "environment.json", "plan.json", "_SUCCESS")
AT_REST = {  # kind of file: where it is, its name, and the command that relies on it
    "dataset manifest": ("data", "manifest.json", "rank"),
    "dataset queries": ("data", "queries-*.parquet", "rank"),
    "dataset lists": ("data", "lists-*.parquet", "rank"),
    "dataset experts": ("data", "experts.parquet", "rank"),
    "model manifest": ("model", "manifest.json", "rank"),
    "model params": ("model", "params.parquet", "rank"),
    "model experts": ("model", "experts.parquet", "rank"),
    "rankings": ("rankings", "part-*.parquet", "evaluate"),
    "rankings manifest": ("rankings", "_manifest.json", "evaluate"),
    "output of a run": ("run", "output/ranked/part-*", "verify"),
    "model of a run": ("run", "output/model/*", "verify"),
    "result of a run": ("run", "output/checked.json", "verify"),
    "metrics of a run": ("run", "metrics.json", "verify"),
    "manifest of a run": ("run", "manifest.json", "verify"),
}


def flip(draw: Any, file: Path) -> tuple[int, int]:
    """Flip one bit of a file in place; gives the byte's position and its value before."""
    at = draw.randrange(file.stat().st_size)
    with file.open("r+b") as stream:
        stream.seek(at)
        before = stream.read(1)[0]
        stream.seek(at)
        stream.write(bytes([before ^ 1 << draw.randrange(8)]))
    return at, before


def put_back(file: Path, at: int, before: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(at)
        stream.write(bytes([before]))


class AtRest:
    """Whole files, what commands make of them, and copies of them to damage."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix
        self.whole = matrix.folder / "whole"
        self.whole.mkdir()
        trained = matrix.folder / "undisturbed-training"
        shutil.copytree(matrix.folder / "data", self.whole / "data")
        shutil.copytree(trained / "output" / "model", self.whole / "model")
        shutil.copytree(trained / "output" / "ranked", self.whole / "rankings")
        shutil.copytree(trained, self.whole / "run")
        self.expected = {command: self.made(command, self.whole)[1] for command in ("rank", "evaluate", "verify")}

    def made(self, command: str, folder: Path) -> tuple[int | None, bytes]:
        """The exit code of a command, and the bytes that it made."""
        result = folder / "result.csv"
        data, model, rankings = (str(folder / name) for name in ("data", "model", "rankings"))
        words = {
            "rank": ["rank", model, data, "-o", str(result)],
            "evaluate": ["evaluate", rankings, data, "-m", "ndcg@5", "-o", str(result)],
            "verify": ["verify", str(folder / "run")],
        }[command]
        code = self.matrix.command(*words)
        body = result.read_bytes() if result.exists() else b""
        result.unlink(missing_ok=True)
        return code, body

    def damage(self, kind: str, times: int) -> None:
        """Flip a bit in a copy of a file, and see what the command makes of it."""
        where, name, command = AT_REST[kind]
        folder = self.matrix.folder / "damaged"
        shutil.copytree(self.whole, folder)
        for _ in range(times):
            file = self.matrix.draw.choice(sorted(f for f in (folder / where).glob(name) if f.stat().st_size))
            at, before = flip(self.matrix.draw, file)
            code, body = self.made(command, folder)
            put_back(file, at, before)
            if code in (2, 3, 4):
                outcome = "refused clearly"
            elif code == 0 and command != "verify" and body == self.expected[command]:
                outcome = "straight to the same bytes"
            else:
                outcome = "hung" if code == -1 else "wrong"
            detail = f"exit {code}, {file.name}, byte {at} of {file.stat().st_size}"
            self.matrix.note("a bit flipped at rest", kind, outcome, detail)
        shutil.rmtree(folder)


def flipped_meanwhile(matrix: Any, at_moves: Callable[..., Any], job: str, times: int) -> None:
    """Before a random move of the driver, flip a bit in a file of its run or dataset."""
    for _ in range(times):
        run, number = matrix.run_path(), matrix.draw.randrange(1, len(matrix.moves[job]))
        note = matrix.folder / f"flipped-{matrix.trials}"
        seed = matrix.draw.random()

        def damage(n: int, name: str, torn: Any, run: Path = run, number: int = number, note: Path = note,
                   seed: float = seed) -> None:  # fmt: skip
            if n != number:
                return
            import random

            draw = random.Random(seed)
            files = [file for file in (*run.rglob("*"), *(matrix.folder / "data").iterdir())
                     if file.is_file() and file.name not in IGNORED and file.stat().st_size]  # fmt: skip
            file = draw.choice(sorted(files))
            at, before = flip(draw, file)
            descriptor = os.open(note, os.O_CREAT | os.O_WRONLY)  # not by a move, which would be counted
            os.write(descriptor, f"{file}\n{at}\n{before}".encode())
            os.close(descriptor)

        code = matrix.run(job, run, at_moves(damage))
        if note.exists():
            file, at, before = note.read_text().split("\n")
            if Path(file).parent == matrix.folder / "data":
                put_back(Path(file), int(at), int(before))
        matrix.count("a bit flipped meanwhile", job, run, happened=note.exists(), code=code, clean=code in (2, 3, 4),
                     may=(2, 3, 4))  # fmt: skip
