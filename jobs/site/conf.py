"""Sphinx settings of the documentation site; ``build.py`` writes the pages and calls Sphinx."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml

import distagg

project = "distagg"
version = release = distagg.__version__
copyright = "the authors of distagg, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
highlight_language = "none"  # a block without a language holds commands
nitpicky = False
suppress_warnings = ["misc.highlighting_failure"]

myst_enable_extensions = ["dollarmath"]
myst_dmath_allow_space = False  # prices and shell variables are no formulas
myst_dmath_allow_digits = False
myst_heading_anchors = 4  # links to headings as on the pages themselves: start.md#the-same-in-python

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 100
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"distagg {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # a page opened from a file may not read other files
html_math_renderer = "mathml"
html_theme_options = {
    "sidebar_hide_name": False,
    "light_css_variables": {"color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {"color-brand-primary": "#7cc4ee", "color-brand-content": "#7cc4ee"},
}


def name_examples(app: Any, what: str, name: str, about: Any, options: Any, lines: list[str]) -> None:
    """Put a heading above the examples that follow the sections of a docstring; napoleon needs one."""
    first = next((n for n, line in enumerate(lines) if line.startswith(">>> ")), None)
    if first is not None and any(re.fullmatch(r"-{3,}", line) for line in lines[:first]):
        lines[first:first] = ["Examples", "--------"]


def write_formula(writer: Any, node: nodes.Element) -> None:
    """A formula as MathML, which browsers draw without a script."""
    writer.body.append(latex2mathml.tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", name_examples, priority=400)  # before napoleon, which has 500
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
