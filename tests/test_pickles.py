"""Nothing on disk is a pickle, and none is read: files that would run code when unpickled are planted and refused."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distagg.cli.main import main

# Every audit event of an unpickler that looks up a name, for each of several commands in one process. While a command
# runs, a file may hold other bytes.
WATCH = """
import json, sys
from pathlib import Path
import numba, scipy.stats, sparse, pandas  # these look things up when imported
from distagg.cli.main import main
seen = []
sys.addaudithook(lambda event, args: seen.append(args) if event == "pickle.find_class" else None)
found = []
for step in json.loads(sys.argv[1]):
    seen.clear()
    if step["file"]:
        kept = Path(step["file"]).read_bytes()
        Path(step["file"]).write_bytes(Path(step["bytes"]).read_bytes().ljust(len(kept), bytes(1)))
    code = main(step["command"])
    if step["file"]:
        Path(step["file"]).write_bytes(kept)
    found.append([code, len(seen)])
print("FOUND", json.dumps(found))
"""


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.marker),)


def watched(
    commands: list[tuple[str | Path, ...]], files: list[Path] | None = None, trap: Path | None = None
) -> list[tuple[int, int]]:
    """Exit codes of commands, and how many names unpicklers looked up on the way; each may have a file replaced."""
    steps = [
        {"command": [str(word) for word in command], "file": str(files[n]) if files else "", "bytes": str(trap)}
        for n, command in enumerate(commands)
    ]
    settings = {**os.environ, "DISTAGG_CACHE": "0"}  # compiled code is kept as pickles, in a private folder
    command = [sys.executable, "-c", WATCH, json.dumps(steps)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=settings)
    found = next(line for line in done.stdout.splitlines() if line.startswith("FOUND"))
    return [(code, names) for code, names in json.loads(found.removeprefix("FOUND"))]


@pytest.fixture(scope="module")
def made(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset, a model and rankings."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(planted, folder / "dataset")
    assert main(["fit", "bestinput", str(folder / "dataset"), "-o", str(folder / "model")]) == 0
    assert main(["rank", str(folder / "model"), str(folder / "dataset"), "-o", str(folder / "rankings")]) == 0
    return folder


def test_the_trap_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung")))
    assert (tmp_path / "sprung").exists()
    watch = WATCH.replace(
        'main(step["command"])', "len([__import__('pickle').loads(__import__('pickle').dumps(print))])"
    )
    step = json.dumps([{"command": [], "file": "", "bytes": ""}])
    done = subprocess.run([sys.executable, "-c", watch, step], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.endswith(", 1]]\n")


def test_nothing_written_is_a_pickle(made: Path) -> None:
    files = [file for file in made.rglob("*") if file.is_file()]
    assert len(files) > 8
    for file in files:
        body = file.read_bytes()
        assert not body.startswith(b"\x80"), file  # pickle protocols 2 and later
        assert body[:4] == b"PAR1" or file.suffix == ".json" or not body, file


def test_whole_runs_unpickle_nothing(made: Path, tmp_path: Path) -> None:
    rank = ("rank", made / "model", made / "dataset", "-o", tmp_path / "out")
    assert watched([rank, ("evaluate", made / "rankings", made / "dataset")]) == [(0, 0), (0, 0)]


def test_pickles_in_place_of_files_are_refused_unread(made: Path, tmp_path: Path) -> None:
    """Each file of a dataset, a model and rankings in turn becomes a pickle of the same length."""
    out = tmp_path / "out"
    commands: dict[str, tuple[str | Path, ...]] = {
        "dataset": ("rank", "rrf", tmp_path / "dataset", "-o", out),
        "model": ("rank", tmp_path / "model", made / "dataset", "-o", out),
        "rankings": ("evaluate", tmp_path / "rankings", made / "dataset"),
    }
    trap = tmp_path / "trap"
    trap.write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    for part in commands:
        shutil.copytree(made / part, tmp_path / part)
    files = [
        file
        for part in commands
        for file in sorted((tmp_path / part).iterdir())
        if file.suffix == ".parquet" or file.name == "manifest.json"
    ]
    assert {file.parent.name for file in files} == set(commands)
    found = watched([commands[file.parent.name] for file in files], files, trap)
    assert dict(zip(files, found, strict=True)) == dict.fromkeys(files, (3, 0))
    assert not (tmp_path / "sprung").exists()
    assert not out.exists()


def test_pickles_inside_files_stay_unread(made: Path, tmp_path: Path) -> None:
    """Where readers have unpickled before: an Arrow extension type, object arrays, files of NumPy given as sources."""
    trap = pickle.dumps(Trap(tmp_path / "sprung"))
    metadata = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": trap}
    shutil.copytree(made / "rankings", tmp_path / "rankings")
    for file in (tmp_path / "rankings").glob("rankings-*.parquet"):
        table = pq.read_table(file)
        fields = [pa.field(f.name, f.type, metadata=metadata if f.name == "item" else None) for f in table.schema]
        pq.write_table(table.cast(pa.schema(fields)), file)
    np.save(tmp_path / "objects.npy", np.array([Trap(tmp_path / "sprung")], dtype=object), allow_pickle=True)
    (tmp_path / "frame.pkl").write_bytes(trap)
    sources = [("import", "rankings", tmp_path / name, "-o", tmp_path / "out") for name in ("objects.npy", "frame.pkl")]
    found = watched([("evaluate", tmp_path / "rankings", made / "dataset"), *sources])
    assert [names for _, names in found] == [0, 0, 0]
    assert all(code in (2, 3) for code, _ in found[1:])
    assert not (tmp_path / "sprung").exists()
