"""A comparison that was interrupted goes on with the next model, to the same bytes."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from small_jobs import fingerprints

from distagg.cli.main import main
from distagg.pipeline.folder import RunFolder


def test_models_that_were_compared_are_not_compared_again(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    models = ["bestinput", "rrf", "borda"]
    step = {"do": "compare", "dataset": str(small), "models": models, "folds": 5, "settings": {"rrf": {"c": [10, 60]}}}
    Path("job.json").write_text(json.dumps({"name": "compared", "steps": {"compared": step}}))
    assert main(["run", "job.json", "-o", "whole"]) == 0
    comparing = import_module("distagg.engine.compare")  # the package has a function of that name
    tested = comparing._test_model

    def stop(group: Any, *given: Any) -> Any:
        if group[0].name == "borda":
            raise KeyboardInterrupt
        return tested(group, *given)

    with monkeypatch.context() as patched:
        patched.setattr(comparing, "_test_model", stop)
        assert main(["run", "job.json", "-o", "again"]) == 130
    assert main(["resume", "again"]) == 0
    measured = [one["what"] for one in RunFolder(Path("again")).events() if one["event"] == "measuring"]
    assert measured == [*models, "borda"]
    assert fingerprints(Path("again")) == fingerprints(Path("whole"))
