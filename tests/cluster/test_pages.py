"""What the pages under cluster/ say: settings against Dask's defaults, links, units, the cron line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from distagg.engine.certificates import configuration

FOLDER = Path(__file__).parents[2] / "cluster"
PAGE = (FOLDER / "README.md").read_text()


def flat(value: dict[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, one in value.items():
        name = f"{path}.{key}" if path else key
        found |= flat(one, name) if isinstance(one, dict) else {name: one}
    return found


def test_every_setting_that_differs_is_explained() -> None:
    import dask
    import distributed  # noqa: F401 (brings its defaults)

    ours = flat(yaml.safe_load(configuration("/c")))
    differ = [key for key, value in ours.items() if dask.config.get(key, None, override_with=None) != value]
    explained = re.findall(r"^\| `(distributed[^`]*)`", PAGE, flags=re.MULTILINE)
    assert len(explained) >= 6
    for key in differ:
        assert any(key == name or key.startswith(f"{name}.") for name in explained), key
    for name in explained:
        assert any(key == name or key.startswith(f"{name}.") for key in differ), f"{name} is Dask's default"


def test_links_and_files_are_there() -> None:
    for page in FOLDER.rglob("README.md"):
        for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page}: {link}"
        for name in re.findall(r"(?<![\w/])cluster/[\w./-]+", page.read_text()):
            assert list(FOLDER.parent.glob(name.rstrip("."))) or name.endswith("distagg-nightly."), f"{page}: {name}"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_the_units_are_valid(tmp_path: Path) -> None:
    service = (FOLDER / "scheduled" / "distagg-nightly.service").read_text()
    (tmp_path / "distagg-nightly.service").write_text(re.sub(r"ExecStart=.*", "ExecStart=/bin/true", service))
    shutil.copy(FOLDER / "scheduled" / "distagg-nightly.timer", tmp_path)
    units = sorted(tmp_path.iterdir())
    checked = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert not [line for line in checked.stderr.splitlines() if "distagg-nightly" in line]


def test_the_units_know_the_exit_codes() -> None:
    import configparser

    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((FOLDER / "scheduled" / "distagg-nightly.service").read_text())
    assert unit["Service"]["RestartPreventExitStatus"].split() == ["1", "2", "3", "70"]
    assert unit["Service"]["SuccessExitStatus"] == "143"


@pytest.mark.parametrize(("code", "runs"), [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2), (70, 1)])
def test_the_cron_line_tries_again_only_what_may_pass(code: int, runs: int, tmp_path: Path) -> None:
    if not shutil.which("flock"):
        pytest.skip("flock is not installed")
    (line,) = [x for x in (FOLDER / "scheduled" / "crontab").read_text().splitlines() if not x.startswith("#")]
    command = line.split(maxsplit=5)[5].replace("/srv/distagg", str(tmp_path))
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for file, body in {".venv/bin/distagg": f'echo "$@" >> calls; exit {code}', "bin/sleep": "true"}.items():
        (tmp_path / file).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / file).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", command], env=environment, check=False)
    assert (tmp_path / "calls").read_text().splitlines() == ["run nightly.toml"] * runs
    assert (done.returncode == 0) == (code == 0)
