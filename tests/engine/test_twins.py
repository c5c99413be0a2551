"""Whole jobs as a user's process runs them, on numpy twins, give the bits of compiled kernels."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

import distagg
from distagg.kernels import jit

MODELS = ("rrf", "borda", "condorcet", "copeland", "mc4", "kemeny", "bradley_terry", "plackett_luce")


def digest(table: pa.Table) -> str:
    buffers = [b for column in table.combine_chunks().columns for b in column.chunk(0).buffers() if b is not None]
    return hashlib.sha256(b"".join(b.to_pybytes() for b in buffers)).hexdigest()


def answers(path: str) -> dict[str, str]:
    dataset = distagg.Dataset.open(path)
    found = {name: digest(distagg.rank(name, dataset)) for name in MODELS}
    fitted = distagg.fit("crf", dataset.select(fold=(3, {0, 1})), valid=dataset.select(fold=(3, {2})))
    return {**found, "crf": digest(distagg.rank(fitted, dataset))}


def test_jobs_give_the_bits_of_compiled_ones(planted: Path) -> None:
    assert jit.WARM == 0
    script = f"import json, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    script += "from test_twins import answers; print(json.dumps(answers(sys.argv[1])))"
    made = subprocess.run([sys.executable, "-c", script, str(planted)], capture_output=True, text=True, check=True)
    cold = json.loads(made.stdout)
    assert cold == answers(str(planted))
    assert len(set(cold.values())) == len(cold)
