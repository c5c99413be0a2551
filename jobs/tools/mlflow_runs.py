"""A comparison as runs of MLflow, one for each model: python mlflow_runs.py RUN... QRELS"""

import sys

import mlflow

import distagg


def log(row):
    with mlflow.start_run(run_name=f"{row['what']} {row['model']}"):
        mlflow.log_params({"model": row["model"], **row.get("settings", {})})
        for name, value in row.get("metrics", {}).items():
            mlflow.log_metric(name.replace("@", "_at_"), value)  # MLflow allows no @ in names
        for step, value in enumerate(row.get("curve", ()), 1):
            mlflow.log_metric("validation", value, step=step)


*runs, qrels = sys.argv[1:]
mlflow.set_experiment("fusion")
distagg.compare(runs, ["rrf", "borda", "combsum"], labels=qrels, on_result=log)
distagg.fit("crf", runs, labels=qrels, on_result=log)
