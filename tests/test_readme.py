"""Every command and example of the README is run."""

from __future__ import annotations

import random
import re
import shlex
import shutil
from pathlib import Path

import pytest

from distagg.cli.main import main

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def write_letor(folder: Path) -> None:
    """Five small parts in which the first of three experts is right."""
    draw = random.Random(0)
    for part in range(1, 6):
        lines = []
        for query in range(4):
            for place, label in enumerate([2, 1, 0, 0, 0, 0], start=1):
                ranks = f"1:{place} 2:{draw.randint(1, 40)} 3:NULL"
                lines.append(f"{label} qid:{part}{query} {ranks} #docid = d{place}")
        (folder / f"A{part}.txt").write_text("\n".join(lines) + "\n")


def write_ratings(folder: Path) -> None:
    """Thirty users, the odd ones young women, who rate twelve of fifteen movies."""
    draw = random.Random(1)
    rows = [(u, i, draw.randint(1, 5)) for u in range(30) for i in draw.sample(range(15), 12)]
    (folder / "u.data").write_text("".join(f"{u}\t{i}\t{r}\t0\n" for u, i, r in rows))
    (folder / "u.user").write_text("".join(f"{u}|{40 - 20 * (u % 2)}|{'MF'[u % 2]}|cook|1\n" for u in range(30)))
    genres = "|".join("0" * 19)
    (folder / "u.item").write_text("".join(f"{i}|Movie {i}|1999||url|{genres}\n" for i in range(15)))


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_letor(tmp_path)
    write_ratings(tmp_path)
    shutil.copytree(Path(__file__).parents[1] / "jobs", tmp_path / "jobs", ignore=shutil.ignore_patterns("*.py"))
    monkeypatch.chdir(tmp_path)
    commands = [line for block in blocks("") for line in block.splitlines() if line.startswith("distagg ")]
    assert len(commands) >= 5
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0, command
    assert (tmp_path / "report.html").exists()
    assert "Movie 3" in (tmp_path / "top.html").read_text()


def test_the_python_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    lists, battles = blocks("python")
    exec(compile(lists, "README.md", "exec"), {})
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[2] for row in rows] == ["b", "c", "a"]
    exec(compile(battles, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert "unbeaten" in said
    assert "True no score alone would move" in said


def test_every_model_is_named() -> None:
    from distagg.models import MODELS

    assert all(f"`{name}`" in README for name in MODELS if name not in ("mc2", "mc3"))


def test_the_tree_names_what_is_there() -> None:
    root = Path(__file__).parents[1]
    for folder in ("sources", "dataset", "kernels", "models", "metrics", "engine", "reports", "cli"):
        assert (root / "distagg" / folder).is_dir()
        assert f"  {folder}/" in README
