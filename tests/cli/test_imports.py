"""What commands load: start-up time is most of a small job's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from distagg.cli.demo import QUICK

SCRIPT = """
import json, sys
from distagg.cli.main import main
assert not any([main(command) for command in json.loads(sys.argv[1])])
print("LOADED", *sorted({"numba", "pandas", "scipy", "distributed"} & set(sys.modules)))
"""


def loaded(*commands: list[str]) -> list[str]:
    """Which of the heavy packages a process has loaded that ran these commands."""
    script = [sys.executable, "-c", SCRIPT, json.dumps(commands)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()[1:]


def test_cheap_models_and_metrics_load_no_numba(planted: Path, tmp_path: Path) -> None:
    ranked = [["rank", name, str(planted), "-o", str(tmp_path / name)] for name in ("rrf", "borda", "combsum")]
    assert loaded(*ranked, ["evaluate", str(tmp_path / "rrf"), str(planted)]) == []


def test_the_first_table_of_the_demo_needs_no_compiler(planted: Path) -> None:
    """So it comes within seconds on a machine that has compiled nothing yet."""
    models = ",".join(QUICK)
    assert "numba" not in loaded(["compare", str(planted), "--models", models, "--folds", "letor5"])


def test_fit_and_compare_load_no_pandas(planted: Path, tmp_path: Path) -> None:
    """numba brings scipy."""
    data, model = str(planted), str(tmp_path / "model")
    fit, rank = ["fit", "crf", data, "-o", model], ["rank", model, data, "-o", str(tmp_path / "run")]
    compare = ["compare", data, "--models", "rrf,borda", "--folds", "3"]
    assert loaded(fit, rank, compare) == ["numba", "scipy"]


def test_files_are_ranked_and_evaluated_without_pandas(tmp_path: Path) -> None:
    """Arrow imports pandas, a fifth of a second, to convert plain values."""
    run, qrels, lists, battles = (str(tmp_path / name) for name in ("a.run", "qrels", "lists.csv", "battles.csv"))
    Path(run).write_text("q Q0 x 1 0.5 t\nq Q0 y 2 0.25 t\n")
    Path(qrels).write_text("q 0 x 1\n")
    Path(lists).write_text("expert,item,rank\na,x,1\na,y,2\n")
    Path(battles).write_text("model_a,model_b,winner\nx,y,model_a\n")
    straight = [["rank", "rrf", run], ["rank", "borda", lists], ["rank", "borda", battles], ["evaluate", run, qrels]]
    assert loaded(*straight) == []
