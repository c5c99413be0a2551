"""All benchmarks one after another: ``make bench``.

    python jobs/bench/run.py [--quick] [--only models] [--json FILE] [--peers-python PYTHON]

The peers live in an environment of their own, .venv-peers, made on first use from peers.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from environment import peers_python

HERE = Path(__file__).parent

# Those that print their tables themselves, and whether peers take part.
PRINTING = {
    "pairs": True, "luce": True, "kemeny": True, "tune": True, "mpm": False, "crf": False, "svd": False, "stagg": False,
    "ratings": False, "training": False,
}  # fmt: skip
BENCHMARKS = ("models", "metrics", "import_trec", *PRINTING)


def run_models(folder: Path, quick: bool, python: str) -> dict[str, Any]:
    """Prints its own tables."""
    file = folder / "models.json"
    command = [sys.executable, str(HERE / "models.py"), "--peers-python", python, "--json", str(file)]
    subprocess.run([*command, *(["--quick"] if quick else [])], check=True)
    result: dict[str, Any] = json.loads(file.read_text())
    return result


def run_script(name: str, arguments: list[str]) -> dict[str, Any]:
    """A benchmark that prints JSON; 1 means that it missed a goal, which its figures tell."""
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{name} ended with code {done.returncode}; its message is above")
    result: dict[str, Any] = json.loads(done.stdout)
    print_figures(name, result)
    return result


def print_figures(title: str, figures: dict[str, Any], indent: str = "") -> None:
    """Nested figures, a line each."""
    print(f"\n{title}" if not indent else f"{indent[2:]}{title}")
    for name, value in figures.items():
        if isinstance(value, dict):
            print_figures(name, value, indent + "  ")
        else:
            print(f"{indent}  {name:<44} {value:.6g}" if isinstance(value, float) else f"{indent}  {name:<44} {value}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small data: minutes instead of an hour; proves no goal")
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="only this benchmark (may be repeated)")
    parser.add_argument("--json", type=Path, help="write everything measured to this file, too")
    parser.add_argument(
        "--peers-python",
        default=os.environ.get("DISTAGG_PEERS_PYTHON"),
        help="an interpreter that has the peers already ($DISTAGG_PEERS_PYTHON); otherwise .venv-peers is made",
    )
    options = parser.parse_args()
    wanted = options.only or BENCHMARKS
    results: dict[str, Any] = {}
    python = ""
    with tempfile.TemporaryDirectory(prefix="distagg-bench-") as folder:
        if "models" in wanted or any(PRINTING[name] for name in wanted if name in PRINTING):
            python = options.peers_python or peers_python()
        if "models" in wanted:
            results["models"] = run_models(Path(folder), options.quick, python)
        if "metrics" in wanted:
            results["metrics"] = run_script(
                "metrics", ["--queries", "1000", "--rows", "10000"] if options.quick else []
            )
        if "import_trec" in wanted:
            size = ["--runs", "6", "--topics", "40"] if options.quick else []
            results["import_trec"] = run_script("import_trec", [folder, *size])
    for name in (name for name in PRINTING if name in wanted):
        print(f"\n== {name}", flush=True)
        peers = ["--peers-python", python] if PRINTING[name] else []
        quick = ["--quick"] if options.quick else []
        done = subprocess.run([sys.executable, str(HERE / f"{name}.py"), *peers, *quick])
        if done.returncode not in (0, 1):
            raise SystemExit(f"{name} ended with code {done.returncode}; its message is above")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
