"""Runs the tests on the oldest versions that pyproject.toml allows, and on the newest (``make test-versions``).

Two environments, ``.venv-oldest`` and ``.venv-newest``. The oldest versions are the lower bounds of pyproject.toml, so
that a bound is what the tests pass with. Arguments go to pytest; without any, all tests run but those on real data.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHOWN = ("numpy", "scipy", "numba", "pyarrow", "sparse", "dask", "distributed", "click", "pandas", "polars", "lightgbm")
TOOLS = ("ruff", "mypy", "import-linter", "pre-commit")  # of the developers; the tests do without
PYTHONS = {"oldest": ("python3.11",), "newest": ("python3.14", "python3.13", "python3.12", "python3.11")}


def lower_bounds(project: dict[str, object]) -> list[str]:
    """The requirements of a package and of its extras at their lower bounds.

    >>> lower_bounds({"dependencies": ["numpy>=2.0"], "optional-dependencies": {"s3": ["dask[dataframe]>=2025.1"]}})
    ['dask==2025.1', 'numpy==2.0']
    """
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    needed = [*project["dependencies"], *(one for name in extras if name != "dev" for one in extras[name])]  # type: ignore[misc]
    found = (re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", text) for text in needed)
    return sorted({f"{match[1]}=={match[2]}" for match in found if match})


def interpreter(names: Sequence[str]) -> str:
    """The first of the interpreters that is installed and starts."""
    for name in names:
        path = shutil.which(name)
        if path and subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0:
            return path
    return sys.executable


def environment(which: str) -> Path:
    """Make an environment, or bring it up to date; gives its Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = ROOT / f".venv-{which}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter(PYTHONS[which]), "-m", "venv", folder], check=True)
    bounds = folder / "bounds.txt"
    bounds.write_text("\n".join(lower_bounds(project) if which == "oldest" else []) + "\n", encoding="utf-8")
    tools = [one for one in project["optional-dependencies"]["dev"] if not one.startswith(TOOLS)]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    subprocess.run([*pip, "--constraint", bounds, "--editable", ".[all]", *tools], cwd=ROOT, check=True)
    return python


def main(arguments: Sequence[str]) -> int:
    codes = []
    for which in ("oldest", "newest"):
        python = environment(which)
        program = (
            "import sys; from importlib.metadata import version; "
            "print('python', sys.version.split()[0], *(f'{name} {version(name)}' for name in sys.argv[1:]))"
        )
        print(f"== {which}: ", end="", flush=True)
        subprocess.run([python, "-c", program, *SHOWN], check=True)
        pytest = [
            python,
            "-m",
            "pytest",
            "-n",
            "auto",
            "--dist",
            "loadfile",
            "--no-loadscope-reorder",
            "-m",
            "not real",
        ]
        codes.append(subprocess.run([*pytest, *arguments], cwd=ROOT, check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
