"""What is installed to start from: every guide has its inputs, and every job file runs on the example that it names."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import blocks

from distagg.cli.main import main
from distagg.examples import EXAMPLES, JOB_KINDS, write_example

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "jobs" / "guides"
FAST = {  # instead of workers and of models that compile long: the files are what is tested
    "cross-validation": ['steps.compared.models=["rrf","borda"]'],
    "nightly": ["place.workers=0", 'steps.checked.models=["rrf","bestinput"]', "steps.model.model=bestinput"],
    "tuning": ['steps.tuned.beside=["bestinput"]', 'steps.tuned.models=["rrf"]'],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_written_with_its_guide_and_its_first_command_works(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["example", name]) == 0
    told = capsys.readouterr().out
    for file in (tmp_path / name).iterdir():
        assert file.name in told
    guide = (tmp_path / name / f"{name}.md").read_text(encoding="utf-8")
    assert "](" not in guide.replace("](http", ""), "a link that leads nowhere here"
    assert f"distagg example {name} " in blocks(guide)[0][1]
    monkeypatch.chdir(tmp_path / name)
    assert main(EXAMPLES[name].first.split()[1:]) == 0


def test_every_guide_that_needs_files_has_an_example() -> None:
    guides = {
        file.stem for file in GUIDES.glob("*.md") if f"distagg example {file.stem} " in file.read_text(encoding="utf-8")
    }
    assert guides == set(EXAMPLES)


def test_examples_are_listed_and_written_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["example"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in EXAMPLES)
    assert main(["example", str(tmp_path / "all")]) == 0
    assert {folder.name for folder in (tmp_path / "all").iterdir()} == set(EXAMPLES)


def test_what_is_there_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    assert main(["example", "pairs", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["example", "pears", str(tmp_path / "new")]) == 2
    assert "did you mean 'pairs'" in capsys.readouterr().err
    assert main(["new", "fusion", str(tmp_path)]) == 0
    assert main(["new", "fusion", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_a_job_file_runs_on_its_example(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "job"
    write_example(JOB_KINDS[kind].example, folder)
    monkeypatch.chdir(folder)
    assert main(["new", kind]) == 0
    assert main(["run", f"{kind}.toml", *FAST.get(kind, [])]) == 0
    assert (folder / "runs" / kind / "latest" / "report.html").is_file()


@pytest.mark.parametrize("kind", JOB_KINDS)
def test_what_a_job_file_offers_in_comments_is_right(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields that are commented out, such as '# top = 100', are known, and their values accepted."""
    from distagg.pipeline.spec import read_job

    folder = tmp_path / "job"
    write_example(JOB_KINDS[kind].example, folder)
    monkeypatch.chdir(folder)
    assert main(["new", kind]) == 0
    job = folder / f"{kind}.toml"
    lines = job.read_text(encoding="utf-8").splitlines()
    offered = [line.removeprefix("# ") if line.startswith("# ") and " = " in line else line for line in lines]
    job.write_text("\n".join(offered), encoding="utf-8")
    read_job(job)
