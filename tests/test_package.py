"""The package as strangers get it: built, installed into an empty environment, and used there without the clone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from documents import blocks

import distagg
from distagg.errors import install

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def _run(*command: str | Path, folder: Path, **variables: str) -> str:
    """The output of a command that knows nothing of the clone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=kept | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as pip builds it, from a copy: a build leaves files that the next one would take up."""
    target, source = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("source")
    for name in ("distagg", "jobs/guides"):
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=unwanted)
    for file in (
        *(ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE")),
        *(ROOT / "jobs").glob("*.toml"),
    ):
        shutil.copy(file, source / file.relative_to(ROOT))
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps")
    _run(*pip, "--wheel-dir", target, source, folder=target)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a new environment with the wheel alone; what it depends on is borrowed from this environment.

    The borrowed folder is on the path but not a site folder: its editable installation of the clone has no effect.
    """
    folder = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (borrowed,) = {Path(module.__file__ or "").parents[1] for module in (pytest, yaml)}
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet", "--no-deps")
    _run(*pip, "--no-index", "--disable-pip-version-check", wheel, folder=folder)
    return folder / "bin" / "python"


def test_the_wheel_holds_the_package_its_types_and_its_examples(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(about).decode())
        (guide,) = (archive.read(name) for name in names if name.endswith("share/distagg/guides/metasearch.md"))
    assert metadata["Version"] == distagg.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert {"frames", "lightgbm", "s3", "all"} <= set(metadata.get_all("Provides-Extra") or [])
    package = {file.relative_to(ROOT).as_posix() for file in (ROOT / "distagg").rglob("*.py")}
    installed = {name.partition("share/distagg/")[2] for name in names if ".data/data/" in name}
    jobs = ROOT / "jobs"
    assert installed == {
        file.relative_to(jobs).as_posix() for pattern in ("*.toml", "guides/*.md") for file in jobs.glob(pattern)
    }
    rest = {name for name in names if ".dist-info/" not in name and ".data/data/" not in name}
    assert rest == package | {"distagg/py.typed"}
    assert guide == (ROOT / "jobs" / "guides" / "metasearch.md").read_bytes()


def test_the_readme_a_guide_and_a_job_work_without_the_clone(python: Path, tmp_path: Path) -> None:
    """The README's first example, the guide to crowds, and the job ``fusion``, by the commands that people type."""
    where = _run(python, "-c", "import distagg; print(distagg.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(python.parents[1])
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    example = next(text for language, text in blocks(page) if language == "python")
    shown = next(text for language, text in blocks(page) if language == "text")
    assert _run(python, "-c", example, folder=tmp_path).startswith(shown.partition("...")[0])
    command = python.parent / "distagg"
    _run(command, "example", "metrics", "guide", folder=tmp_path)
    reader = "import sys, documents; print(len(documents.run_page(open(sys.argv[1]).read())))"
    (tmp_path / "elsewhere").mkdir()
    done = _run(
        python,
        "-c",
        reader,
        tmp_path / "guide" / "metrics.md",
        folder=tmp_path / "elsewhere",
        PYTHONPATH=str(ROOT / "tests"),
    )
    assert int(done) > 3
    _run(command, "example", "metasearch", "job", folder=tmp_path)
    _run(command, "new", "fusion", "job", folder=tmp_path)
    assert "ndcg@10" in _run(command, "run", "fusion.toml", folder=tmp_path / "job")
    assert (tmp_path / "job" / "runs" / "fusion" / "latest" / "report.html").is_file()


def test_the_message_about_extras_is_right_wherever_distagg_came_from(python: Path) -> None:
    """Without an index: pip takes the installed package, and what the extras need is here already."""
    _, flag, *command = (word.strip("'") for word in install("frames,lightgbm,s3,all").split())
    pip = (sys.executable, flag, *command[:1], "--python", python, *command[1:])
    told = _run(*pip, "--no-index", "--dry-run", "--disable-pip-version-check", folder=python.parent)
    assert "already satisfied: distagg[all,frames,lightgbm,s3]" in told
    assert "Would install" not in told


def test_extras_hold_what_their_messages_promise() -> None:
    assert EXTRAS["all"] == ["distagg[frames,lightgbm,s3,http]"]
    assert set(EXTRAS) == {"frames", "lightgbm", "s3", "http", "all", "docs", "dev"}
    needed = [*PROJECT["dependencies"], *(one for name in ("frames", "lightgbm", "s3", "http") for one in EXTRAS[name])]
    assert not [one for one in needed if "<" in one or "==" in one], "upper bounds only where newer versions break"


def test_there_is_one_version() -> None:
    """What cannot read it repeats it: the newest section of the changelog, the recipe, the image."""
    assert PROJECT["dynamic"] == ["version"]
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == distagg.__version__
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", newest[2])
    recipe = yaml.safe_load((ROOT / "cluster" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == distagg.__version__
    assert f"distagg:{distagg.__version__} " in (ROOT / "cluster" / "Dockerfile").read_text(encoding="utf-8")


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    recipe = yaml.safe_load((ROOT / "cluster" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    needed = {one.replace(">=", " >=").replace("dask ", "dask-core ") for one in PROJECT["dependencies"]}
    assert set(recipe["requirements"]["run"]) == needed | {f"python {PROJECT['requires-python']}"}
    optional = {one.replace(">=", " >=") for name in ("frames", "lightgbm") for one in EXTRAS[name] if "[" not in one}
    assert set(recipe["requirements"]["run_constraints"]) == optional
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert entry == f"distagg = {PROJECT['scripts']['distagg']}"
    assert (recipe["about"]["summary"], recipe["about"]["license"]) == (PROJECT["description"], PROJECT["license"])
