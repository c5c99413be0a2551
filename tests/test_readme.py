"""Every command and example of the README and the guides is run, and what they show is what is seen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from documents import blocks, check_seen, exists, links, run_page

from distagg.models import MODELS

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "jobs" / "guides"
PAGES = [ROOT / "README.md", *sorted(GUIDES.glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_what_a_page_says_is_so(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = shutil.ignore_patterns("bench", "peers", "reproduce", "scaling", "__pycache__")
    shutil.copytree(ROOT / "jobs", tmp_path / "jobs", ignore=wanted)
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    commands = run_page(text, lambda: "\n".join(capsys.readouterr()))
    elsewhere = sum(block.count("\ndistagg ") for language, block in blocks(text) if language == "sh")
    told = text.count("\ndistagg ") - elsewhere
    assert sum(command.startswith("distagg ") for command in commands) == told


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page.read_text(encoding="utf-8")):
        assert exists(ROOT, page, target), target


def test_every_guide_is_linked_from_the_readme() -> None:
    linked = set(links(PAGES[0].read_text(encoding="utf-8")))
    assert {f"jobs/guides/{guide.name}" for guide in GUIDES.glob("*.md")} <= linked


def test_the_picture_shows_the_table(load_job: Callable[[str], ModuleType]) -> None:
    drawn = load_job("guides/picture.py").picture(PAGES[0].read_text(encoding="utf-8"))
    kept = (GUIDES / "results.svg").read_text(encoding="utf-8")
    assert drawn == kept, "run: python jobs/guides/picture.py"


def test_the_readme_is_short() -> None:
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) < 200


def test_what_is_not_said_is_noticed() -> None:
    check_seen("a  b\n...\nd", "a b\nc\nd\n")
    for shown in ("b", "d\na b", "a"):
        with pytest.raises(AssertionError, match="was not said"):
            check_seen(shown, "a b\nc\nd\n")


@pytest.mark.parametrize("name", list(MODELS))
def test_every_model_is_explained(name: str) -> None:
    """In an entry that gives its cost and paper as the registry has them."""
    guide = (GUIDES / "models.md").read_text(encoding="utf-8")
    entries = [" ".join(entry.split()) for entry in guide.split("\n- ")[1:]]
    found = [entry for entry in entries if f"**`{name}`**" in entry.partition("(")[0]]
    assert len(found) == 1, name
    about = found[0].partition(").")[0]
    for fact in (MODELS[name].cost, MODELS[name].paper):
        assert fact in about, fact
    assert ("supervised;" in about) == MODELS[name].supervised


def test_the_tree_names_what_is_there() -> None:
    tree = PAGES[0].read_text(encoding="utf-8")
    folders = [entry.name for entry in (ROOT / "distagg").iterdir() if (entry / "__init__.py").exists()]
    assert "models" in folders
    for folder in folders:
        assert f"  {folder}/" in tree
