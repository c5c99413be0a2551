"""Builds the documentation site: ``python jobs/site/build.py FOLDER`` (``make docs``). Nothing is fetched.

The site has the pages of this repository (README, guides, results, reproduction, benchmarks, clusters), which stay
where they are relative to each other, so that their links hold; and pages that are written here: one for every model
from the registry, one for every public name from its docstring, one for every command from its help; and the tutorials.
"""

from __future__ import annotations

import fnmatch
import io
import re
import shutil
import sys
import tempfile
import warnings
from contextlib import redirect_stdout
from pathlib import Path

from sphinx.cmd.build import build_main

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "jobs" / "tutorials")]

import model_pages  # noqa: E402
import notebook  # noqa: E402
import reference_pages  # noqa: E402

SECTIONS = {  # caption in the side bar: pages, without suffix; a star stands for all others of the folder
    "Start": ["jobs/guides/start"],
    "Tutorials": ["tutorials/hybrid", "tutorials/leaderboard", "tutorials/ratings"],
    "Guides": [
        "jobs/guides/metasearch", "jobs/guides/hybrid", "jobs/guides/metrics", "jobs/guides/ratings",
        "jobs/guides/pairs", "jobs/guides/crowd", "jobs/guides/cluster", "jobs/guides/jobs", "jobs/guides/tools",
        "jobs/guides/*",
    ],
    "Models": ["jobs/guides/models", "models/index"],
    "Reference": ["api/index", "commands/index", "CHANGELOG"],
    "Evidence": ["jobs/guides/results", "jobs/reproduce/README", "jobs/bench/README", "jobs/bench/*/README"],
    "Operation": ["jobs/README", "cluster/README", "cluster/*/README", "distagg/README"],
}  # fmt: skip
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")
FENCE = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """The Markdown pages that are part of the site, relative to the root: all guides, and what pages link to."""
    found = [Path("README.md"), Path("CHANGELOG.md")]
    found += sorted(file.relative_to(ROOT) for file in ROOT.glob("jobs/guides/*.md"))
    for page in found:  # which grows meanwhile
        text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
        for _, target, _ in LINK.findall(text):
            file = (ROOT / page.parent / target).resolve()
            if file.suffix == ".md" and file.is_file() and file.is_relative_to(ROOT):
                found += [file.relative_to(ROOT)] if file.relative_to(ROOT) not in found else []
    return found


def copy_page(page: Path, source: Path) -> None:
    """Copy a page and the files that it links to. README.md at the root is the first page, index.md."""

    def follow(match: re.Match[str]) -> str:
        target = match.group(2)
        file = (ROOT / page.parent / target).resolve()
        if "://" in target or target.startswith("mailto:") or not file.exists():
            return match.group(0)
        if file == ROOT / "README.md":
            return f"{match.group(1)}{target.removesuffix('README.md')}index.md{match.group(3)}"
        if file.suffix != ".md":
            copied = source / file.relative_to(ROOT)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copied)
        return match.group(0)

    text = (ROOT / page).read_text(encoding="utf-8")
    fenced = FENCE.findall(text)  # commands and outputs are left alone
    text = "\0".join(LINK.sub(follow, part) for part in FENCE.split(text))
    for block in fenced:
        text = text.replace("\0", block, 1)
    file = source / ("index.md" if page == Path("README.md") else page)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + (side_bar() if page == Path("README.md") else ""), encoding="utf-8")


def side_bar() -> str:
    """The table of contents of all pages, which is shown at the side only."""
    lines = []
    named = {page for section in SECTIONS.values() for page in section}
    others = sorted({page.with_suffix("").as_posix() for page in pages()[1:]} - named)
    for caption, section in {**SECTIONS, "More": ["*"]}.items():
        shown = [page for pattern in section for page in ([pattern] if "*" not in pattern else _taken(others, pattern))]
        lines += ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *shown, "```"] if shown else []
    return "\n".join(lines) + "\n"


def _taken(pages: list[str], pattern: str) -> list[str]:
    """The pages that match a pattern, which are taken off the list."""
    matching = fnmatch.filter(pages, pattern)
    for page in matching:
        pages.remove(page)
    return matching


def write_source(source: Path) -> None:
    """Write everything that Sphinx reads."""
    for page in pages():
        copy_page(page, source)
    guide = (ROOT / "jobs" / "guides" / "models.md").read_text(encoding="utf-8")
    model_pages.write(source / "models", guide)
    reference_pages.write_api(source / "api")
    reference_pages.write_commands(source / "commands")
    write_tutorials(source / "tutorials")
    static = source / "_static"
    static.mkdir()
    shutil.copyfile(Path(__file__).parent / "site.css", static / "site.css")
    shutil.copyfile(Path(__file__).parent / "conf.py", source / "conf.py")


def write_tutorials(folder: Path) -> None:
    """The notebooks as pages, each with the notebook itself to download."""
    folder.mkdir()
    for file in sorted((ROOT / "jobs" / "tutorials").glob("*.ipynb")):
        shutil.copyfile(file, folder / file.name)
        link = f"Download this page [as a notebook]({file.name}).\n"
        (folder / f"{file.stem}.md").write_text(f"{notebook.markdown(notebook.read(file))}\n{link}", encoding="utf-8")


def build(folder: Path) -> None:
    """Build the site; a broken link between pages, or any other warning, is an error."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "source"
        write_source(source)
        options = ["-b", "html", "-q", "-W", "--keep-going", "-d", f"{name}/doctrees"]
        with redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Sphinx's extensions call what Sphinx deprecates
            code = build_main([*options, str(source), str(folder)])
        if code:
            raise SystemExit(code)
    html = sorted(folder.rglob("*.html"))
    words = sum(len(re.sub(r"<[^>]+>", " ", body_of(file)).split()) for file in html)
    print(f"wrote {folder / 'index.html'}: {len(html)} pages, {words:,} words")


def body_of(file: Path) -> str:
    """The text of a page between its side bars, with tags."""
    return file.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]


if __name__ == "__main__":
    build(Path(sys.argv[1]))
