"""Every command and example of the README and the guides is run, and what they show is what is seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import pytest
from documents import blocks, check_seen, exists, links, run_page

from distagg.models import MODELS

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "jobs" / "guides"
PAGES = [ROOT / "README.md", *sorted(GUIDES.glob("*.md"))]
PACKAGE = ROOT / "distagg"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_what_a_page_says_is_so(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    commands = run_page(text)
    elsewhere = sum(block.count("\ndistagg ") for language, block in blocks(text) if language == "sh")
    told = text.count("\ndistagg ") - elsewhere
    assert sum(command.startswith("distagg ") for command in commands) == told


@pytest.mark.parametrize(
    "page",
    [*PAGES, PACKAGE / "README.md", ROOT / "jobs" / "README.md"],
    ids=lambda page: f"{page.parent.name}/{page.stem}",
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page.read_text(encoding="utf-8")):
        assert exists(ROOT, page, target), target


def test_every_guide_is_linked_from_the_readme() -> None:
    linked = set(links(PAGES[0].read_text(encoding="utf-8")))
    assert {f"jobs/guides/{guide.name}" for guide in GUIDES.glob("*.md")} <= linked


def test_the_picture_shows_the_table(load_job: Callable[[str], ModuleType]) -> None:
    drawn = load_job("guides/picture.py").picture((GUIDES / "results.md").read_text(encoding="utf-8"))
    kept = (GUIDES / "results.svg").read_text(encoding="utf-8")
    assert drawn == kept, "run: python jobs/guides/picture.py"


def test_the_readme_is_short() -> None:
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) < 120


def test_what_is_not_said_is_noticed() -> None:
    check_seen("a  b\n...\nd", "a b\nc\nd\n")
    check_seen("a ...", "a b\nc\nd\n")
    for shown in ("b", "d\na b", "a", "a ... c"):
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


def test_shown_output_that_is_not_compared_is_refused() -> None:
    with pytest.raises(AssertionError, match="neither run nor compared"):
        run_page("```output\n42\n```\n")


def test_the_tree_of_the_package_names_every_module_once() -> None:
    """All but the empty ``__init__.py``, and nothing that is not there."""
    ((_, tree),) = blocks((PACKAGE / "README.md").read_text(encoding="utf-8"))
    folders: list[str] = []
    named = []
    for line in tree.splitlines():
        name, _, about = line.strip().partition(" ")
        folders[(len(line) - len(line.lstrip())) // 2 :] = [name]
        if not name.endswith("/"):
            assert about, f"{name} has no description"
            named.append("".join(folders))
    modules = [file for file in PACKAGE.rglob("*.py") if file.name != "__init__.py" or file.stat().st_size]
    assert sorted(named) == sorted(file.relative_to(ROOT).as_posix() for file in modules)


def test_the_ways_through_the_package_name_functions_that_exist() -> None:
    ways = (PACKAGE / "README.md").read_text(encoding="utf-8").partition("## From TREC runs")[2]
    named = re.findall(r"`([a-z_]+(?:\.\w+)+)`", ways)
    assert len(named) > 40
    for name in named:
        assert resolve_name(f"distagg.{name}"), name
