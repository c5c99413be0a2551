"""ranx's optimize_fusion, in its own interpreter: python tune_ranx.py DATA.json

For every line on stdin it searches the grid once more and prints the processor seconds of the user and the seconds that
took, the best weights and their metric. Runs and judgements are in its own form already, and everything is compiled.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from ranx import Qrels, Run, evaluate, fuse, optimize_fusion


def main() -> None:
    body = json.loads(Path(sys.argv[1]).read_text())
    answers, sys.stdout = sys.stdout, sys.stderr  # it draws a progress bar on stdout
    few = list(body["qrels"])[:5]

    def made(queries: list[str]) -> tuple[Qrels, list[Run]]:
        runs = [Run({q: run[q] for q in queries}, name=name) for name, run in body["runs"].items()]
        return Qrels({q: body["qrels"][q] for q in queries}), runs

    optimize_fusion(*made(few), method="wsum", metric=body["metric"], step=0.5)  # compiles
    qrels, runs = made(list(body["qrels"]))
    for _ in sys.stdin:
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_utime, time.perf_counter()
        best = optimize_fusion(qrels, runs, norm="min-max", method="wsum", metric=body["metric"], step=body["step"])
        seconds = time.perf_counter() - start
        user = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
        value = evaluate(qrels, fuse(runs, norm="min-max", method="wsum", params=best), body["metric"])
        found = {"user": user, "seconds": seconds, "weights": best["weights"], "value": float(value)}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
