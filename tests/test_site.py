"""The documentation site: complete, without a broken link, readable and searchable on phone and desk, all offline."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import distagg
from distagg.cli.commands import COMMANDS
from distagg.models import MODELS
from tests.reports.browser import SECONDS, Browser, chromium

ROOT = Path(__file__).parents[1]
LOOKED_AT = (
    "index.html", "models/index.html", "models/crf.html", "api/rank.html", "commands/compare.html",
    "jobs/guides/models.html", "jobs/guides/results.html", "tutorials/leaderboard.html",
)  # fmt: skip

# What is wrong with a page as it is drawn, as lines of text.
LOOK = """(() => {
  const wrong = [], root = document.documentElement, wide = root.clientWidth;
  if (root.scrollWidth > wide) wrong.push(`the page is ${root.scrollWidth} px wide in ${wide}`);
  for (const one of document.querySelectorAll('article :is(h1, h2, p, pre, li, img, math)')) {
    const box = one.getBoundingClientRect();
    if (one.closest('.table-wrapper')) continue;
    if (box.width < 2 || box.height < 2) wrong.push(`${one.tagName} '${one.textContent.slice(0, 30)}' has no size`);
    if (box.right > wide + 1) wrong.push(`${one.tagName} '${one.textContent.slice(0, 30)}' ends at ${box.right}`);
  }
  for (const one of document.images) if (!one.naturalWidth) wrong.push(`no picture: ${one.src}`);
  for (const table of document.querySelectorAll('.table-wrapper')) {
    table.scrollLeft = 9999;
    const cell = table.querySelector('tbody td'), left = table.getBoundingClientRect().left;
    if (cell && Math.abs(cell.getBoundingClientRect().left - left) > 5)
      wrong.push(`the first column of '${table.textContent.trim().slice(0, 20)}' scrolls away`);
  }
  return wrong;
})()"""


class Page(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif "src" in given or (tag == "link" and "href" in given):
            self.loads.append(given.get("src") or given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, load_job: Callable[[str], ModuleType]) -> Path:
    for package in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(package, reason=f"{package} is not installed: make setup")
    folder = tmp_path_factory.mktemp("site")
    load_job("site/build.py").build(folder)
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip("no browser: apt-get install chromium")
    with Browser(program, tmp_path_factory.mktemp("profile")) as started:
        yield started


def broken_links(site: Path) -> list[str]:
    """Links to files or anchors that are not there, and anything that is loaded from elsewhere."""
    pages = {file: Page(file) for file in site.rglob("*.html")}
    broken = []
    for file, page in pages.items():
        for link in {*page.links, *page.loads}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads:
                    broken.append(f"{file.relative_to(site)} loads {link}")
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{file.relative_to(site)}: {link}")
    return broken


def test_no_link_is_broken(site: Path) -> None:
    assert broken_links(site) == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="x"><a href="#x"></a><a href="b.html#y"></a><a href="https://w.invalid">')
    (tmp_path / "b.html").write_text('<a href="c.html"></a><script src="https://w.invalid/x.js"></script>')
    wrong = ["a.html: b.html#y", "b.html loads https://w.invalid/x.js", "b.html: c.html"]
    assert sorted(broken_links(tmp_path)) == sorted(wrong)


def test_every_model_has_a_page_with_all_its_parts(site: Path) -> None:
    for name, model in MODELS.items():
        text = (site / "models" / f"{name}.html").read_text(encoding="utf-8").partition("<article")[2]
        for part in ("idea", "formula", "parameters", "example"):
            assert f'<section id="{part}"' in text, (name, part)
        assert "<math" in text, f"{name} has no formula: give it one in jobs/site/formulas.toml"
        plain = re.sub(r"<[^>]+>", "", text).replace("&amp;", "&").replace("’", "'").replace("&#39;", "'")
        assert " ".join(model.paper.split()) in " ".join(plain.split()), name
        assert re.search(r"^[a-z] -?[0-9]", plain, flags=re.MULTILINE), f"the example of {name} prints no ranking"
        for field in model.__dataclass_fields__.values():
            assert field.metadata == {} or f">{field.name}<" in text, (name, field.name)


def test_every_public_name_command_and_guide_has_a_page(site: Path) -> None:
    for name in set(distagg.__all__) - {"MODELS"}:
        pages = [file for file in (site / "api").glob(f"{name}*.html") if file.stem in (name, f"{name}_class")]
        assert any(f'id="distagg.{name}"' in page.read_text(encoding="utf-8") for page in pages), name
    for name in COMMANDS:
        assert f"Usage: distagg {name}" in (site / "commands" / f"{name}.html").read_text(encoding="utf-8")
    for guide in (ROOT / "jobs" / "guides").glob("*.md"):
        assert (site / "jobs" / "guides" / f"{guide.stem}.html").exists(), guide.stem
    for tutorial in (ROOT / "jobs" / "tutorials").glob("*.ipynb"):
        assert (site / "tutorials" / f"{tutorial.stem}.html").exists(), tutorial.stem


def test_examples_of_the_reference_are_shown(site: Path) -> None:
    page = (site / "api" / "rank.html").read_text(encoding="utf-8")
    assert "Examples" in page
    assert "highlight-pycon" in page or "&gt;&gt;&gt;" in page


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", LOOKED_AT)
def test_a_page_looks_right(browser: Browser, site: Path, page: str, width: int) -> None:
    browser.open(site / page, width)
    assert browser.evaluate(LOOK) == []
    assert browser.said == []
    assert [address for address in browser.asked if not address.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize(
    ("words", "found"), [("reciprocal rank fusion", "models/rrf.html"), ("import_dataset", "api/")]
)
def test_the_search_finds_pages_without_a_server(browser: Browser, site: Path, words: str, found: str) -> None:
    browser.open(site / "search.html", 1280, query="?q=" + words.replace(" ", "+"))
    links: list[str] = []
    end = time.monotonic() + SECONDS
    while not any(found in link for link in links) and time.monotonic() < end:  # results appear one after the other
        links = browser.evaluate("[...document.querySelectorAll('#search-results li a')].map(one => one.href)")
    assert any(found in link for link in links), links
    assert browser.said == []
    assert [address for address in browser.asked if not address.startswith(("file:", "data:"))] == []
