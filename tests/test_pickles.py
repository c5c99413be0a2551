"""Nothing on disk is a pickle, and none is read: files that would run code when unpickled are planted and refused."""

from __future__ import annotations

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

# Every audit event of an unpickler that looks up a name; and whether the planted code ran.
WATCH = """
import sys
import numba, scipy.stats, sparse, pandas  # these look things up when imported
from distagg.cli.main import main
seen = []
sys.addaudithook(lambda event, args: seen.append(args) if event == "pickle.find_class" else None)
code = main(sys.argv[1:])
print("FOUND", code, len(seen))
"""


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.marker),)


def watched(*arguments: str | Path) -> tuple[int, int]:
    """Exit code of a command, and how many names unpicklers looked up on the way."""
    command = [sys.executable, "-c", WATCH, *map(str, arguments)]
    settings = {name: value for name, value in os.environ.items() if name != "DISTAGG_JIT_CACHE"}  # as users have it
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=settings)
    found = next(line for line in done.stdout.splitlines() if line.startswith("FOUND"))
    code, names = found.split()[1:]
    return int(code), int(names)


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
    watch = WATCH.replace("main(sys.argv[1:])", "__import__('pickle').loads(__import__('pickle').dumps(print))")
    done = subprocess.run([sys.executable, "-c", watch], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split()[-1] == "1"


def test_nothing_written_is_a_pickle(made: Path) -> None:
    files = [file for file in made.rglob("*") if file.is_file()]
    assert len(files) > 8
    for file in files:
        body = file.read_bytes()
        assert not body.startswith(b"\x80"), file  # pickle protocols 2 and later
        assert body[:4] == b"PAR1" or file.suffix == ".json" or not body, file


def test_whole_runs_unpickle_nothing(made: Path, tmp_path: Path) -> None:
    assert watched("rank", made / "model", made / "dataset", "-o", tmp_path / "out") == (0, 0)
    assert watched("evaluate", made / "rankings", made / "dataset") == (0, 0)


@pytest.mark.parametrize("part", ["dataset", "model", "rankings"])
def test_pickles_in_place_of_files_are_refused_unread(part: str, made: Path, tmp_path: Path) -> None:
    """Each file in turn becomes a pickle of the same length."""
    commands = {
        "dataset": lambda at: ("rank", "rrf", at, "-o", tmp_path / "out"),
        "model": lambda at: ("rank", at, made / "dataset", "-o", tmp_path / "out"),
        "rankings": lambda at: ("evaluate", at, made / "dataset"),
    }
    trap = pickle.dumps(Trap(tmp_path / "sprung"))
    planted = tmp_path / part
    shutil.copytree(made / part, planted)
    for file in sorted(f for f in planted.iterdir() if f.suffix == ".parquet" or f.name == "manifest.json"):
        kept = file.read_bytes()
        file.write_bytes(trap + b"\x00" * max(0, len(kept) - len(trap)))
        code, names = watched(*commands[part](planted))
        assert (code, names) == (3, 0), file.name
        file.write_bytes(kept)
    assert not (tmp_path / "sprung").exists()
    assert not (tmp_path / "out").exists()


def test_pickles_inside_files_stay_unread(made: Path, tmp_path: Path) -> None:
    """Where readers have unpickled before: an Arrow extension type, object arrays, files of NumPy given as sources."""
    trap = pickle.dumps(Trap(tmp_path / "sprung"))
    metadata = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": trap}
    shutil.copytree(made / "rankings", tmp_path / "rankings")
    for file in (tmp_path / "rankings").glob("rankings-*.parquet"):
        table = pq.read_table(file)
        fields = [pa.field(f.name, f.type, metadata=metadata if f.name == "item" else None) for f in table.schema]
        pq.write_table(table.cast(pa.schema(fields)), file)
    assert watched("evaluate", tmp_path / "rankings", made / "dataset")[1] == 0
    np.save(tmp_path / "objects.npy", np.array([Trap(tmp_path / "sprung")], dtype=object), allow_pickle=True)
    (tmp_path / "frame.pkl").write_bytes(trap)
    for source in ("objects.npy", "frame.pkl"):
        code, names = watched("import", "rankings", tmp_path / source, "-o", tmp_path / "out")
        assert code in (2, 3)
        assert names == 0
    assert not (tmp_path / "sprung").exists()
