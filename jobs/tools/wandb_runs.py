"""A comparison as runs of Weights & Biases, one for each model: python wandb_runs.py RUN... QRELS"""

import sys

import wandb

import distagg


def log(row):
    about = {key: value for key, value in row.items() if key not in ("metrics", "curve")}
    with wandb.init(project="fusion", name=f"{row['what']} {row['model']}", config=about) as run:
        for value in row.get("curve", ()):
            run.log({"validation": value})
        run.summary.update(row.get("metrics", {}))


*runs, qrels = sys.argv[1:]
distagg.compare(runs, ["rrf", "borda", "combsum"], labels=qrels, on_result=log)
distagg.fit("crf", runs, labels=qrels, on_result=log)
