"""Snippets for other tools: shown as they are, and run against stand-ins that have those tools' interfaces."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from documents import blocks

import distagg
from distagg.examples import write_example

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "jobs" / "tools"
RUNS = ["bm25.run", "dense.run", "qrels.txt"]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_example("metasearch", tmp_path / "runs")
    monkeypatch.chdir(tmp_path / "runs")


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """A module by that name; its parents are made as well."""
    parts = name.split(".")
    for n in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:n]), ModuleType(".".join(parts[:n])))
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


def run(monkeypatch: pytest.MonkeyPatch, file: str, *words: str, name: str = "__main__") -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", [file, *words])
    return runpy.run_path(str(TOOLS / file), run_name=name)


def test_the_guide_shows_the_files() -> None:
    guide = (ROOT / "jobs" / "guides" / "tools.md").read_text(encoding="utf-8")
    shown = sorted(text for language, text in blocks(guide) if language == "py")
    assert shown == sorted(file.read_text(encoding="utf-8") for file in TOOLS.iterdir() if file.is_file())


@pytest.mark.usefixtures("runs")
def test_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[Any, ...]] = []
    stand_in(
        monkeypatch,
        "mlflow",
        set_experiment=lambda name: told.append(("experiment", name)),
        start_run=lambda run_name: told.append(("run", run_name)) or nullcontext(),
        log_params=lambda params: told.append(("params", params)),
        log_metric=lambda name, value, step=None: told.append(("metric", name, value, step)),
    )
    run(monkeypatch, "mlflow_runs.py", *RUNS)
    names = [row[1] for row in told if row[0] == "run"]
    assert names == ["compare rrf", "compare borda", "compare combsum", "fit crf"]
    means = distagg.compare(RUNS[:2], ["rrf"], labels=RUNS[2])["means"]["rrf"]
    first = {row[1]: row[2] for row in told[: told.index(("run", "compare borda"))] if row[0] == "metric"}
    assert first == {name.replace("@", "_at_"): value for name, value in means.items()}
    assert [row[3] for row in told if row[1] == "validation"][:2] == [1, 2]


@pytest.mark.usefixtures("runs")
def test_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, Any]] = []
    summaries: dict[str, dict[str, float]] = {}

    def init(project: str, name: str, config: dict[str, Any]) -> Any:
        assert "settings" in config
        return nullcontext(SimpleNamespace(log=logged.append, summary=summaries.setdefault(name, {})))

    stand_in(monkeypatch, "wandb", init=init)
    run(monkeypatch, "wandb_runs.py", *RUNS)
    assert list(summaries) == ["compare rrf", "compare borda", "compare combsum", "fit crf"]
    assert summaries["fit crf"]["map"] in [row["validation"] for row in logged]


def test_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []

    def flow(function: Callable[..., Any]) -> Callable[..., Any]:
        function.serve = lambda *words, **settings: served.append((words, settings))  # type: ignore[attr-defined]
        return function

    stand_in(monkeypatch, "prefect", flow=flow, task=lambda **settings: lambda function: function)
    made = run(monkeypatch, "prefect_flow.py", "nightly.toml")
    assert served == [(("nightly",), {"cron": "0 2 * * *", "parameters": {"job": "nightly.toml"}})]
    for code, error in ((0, None), (1, None), (2, ValueError), (3, ValueError), (4, RuntimeError)):
        monkeypatch.setattr(subprocess, "run", lambda command, code=code: SimpleNamespace(returncode=code))
        with pytest.raises(error) if error else nullcontext():
            made["nightly"]("nightly.toml")


def test_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    class Operator:
        made: list[dict[str, Any]] = []  # noqa: RUF012

        def __init__(self, **settings: Any) -> None:
            self.made.append(settings)

        def __rshift__(self, other: Operator) -> Operator:
            return other

    stand_in(monkeypatch, "airflow.providers.standard.operators.bash", BashOperator=Operator)
    stand_in(monkeypatch, "airflow.sdk", DAG=lambda name, **settings: nullcontext())
    run(monkeypatch, "airflow_dag.py", name="airflow_dag")
    assert [task["task_id"] for task in Operator.made] == ["run", "status"]
    command = Operator.made[0]["bash_command"]
    for code, expected in ((0, 0), (1, 0), (2, 1), (4, 1)):  # as a shell sees it
        shell = command.replace("distagg run nightly.toml", f"(exit {code})")
        assert subprocess.run(["bash", "-c", shell]).returncode == expected


@pytest.mark.usefixtures("runs")
def test_snakemake() -> None:
    """Rules name each other's files, and their commands are ours."""
    from distagg.cli.main import main

    text = (TOOLS / "Snakefile").read_text(encoding="utf-8")
    commands = [line.partition('"')[2].rstrip('"') for line in text.splitlines() if line.strip().startswith("shell:")]
    files = {
        "{input.runs}": "bm25.run dense.run links.run", "{input.qrels}": "qrels.txt", "{threads}": "2",
        "{input.run}": "fused.run", "{input}": "data",
    }  # fmt: skip
    for command, output in zip(commands, ("data", "fused.run", "evaluation.json"), strict=True):
        for name, value in {**files, "{output}": output}.items():
            command = command.replace(name, value)
        words = command.removesuffix(" --workers 2").split()  # a cluster is not what is tested here
        assert main(words[1:]) == 0
        assert Path(output).exists()
