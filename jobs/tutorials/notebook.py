"""Runs notebooks without Jupyter and keeps what they show: ``python jobs/tutorials/notebook.py FILE.ipynb...``

Cells run one after the other in a folder of their own, in one namespace. What a cell prints, and the value of its last
line, become its output. ``markdown`` shows a notebook as a page of the site.
"""

from __future__ import annotations

import ast
import io
import json
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any


def read(file: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return notebook


def run(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The outputs of every code cell, from a run in an empty folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        return [run_cell("".join(cell["source"]), names) for cell in code_cells(notebook)]


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell prints, and the value of its last line if that is an expression."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed), redirect_stderr(printed):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())})
    if value is not None:
        outputs.append({"data": shown(value), "metadata": {}, "output_type": "execute_result"})
    return outputs


def shown(value: Any) -> dict[str, list[str]]:
    """A value as text, and as HTML or SVG where it has such a form."""
    forms = {"text/plain": lines(repr(value))}
    for kind, method in (("text/html", "_repr_html_"), ("image/svg+xml", "_repr_svg_")):
        if hasattr(value, method):
            forms[kind] = lines(getattr(value, method)())
    return forms


def lines(text: str) -> list[str]:
    """Text as notebooks keep it."""
    return text.splitlines(keepends=True)


def with_outputs(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of a run."""
    for number, (cell, outputs) in enumerate(zip(code_cells(notebook), run(notebook), strict=True), 1):
        for output in outputs:
            if output["output_type"] == "execute_result":
                output["execution_count"] = number
        cell.update(execution_count=number, outputs=outputs)
    return notebook


def text(outputs: list[dict[str, Any]]) -> str:
    """What outputs say, without their other forms."""
    return "\n".join("".join(o["text"] if o["output_type"] == "stream" else o["data"]["text/plain"]) for o in outputs)


def markdown(notebook: dict[str, Any]) -> str:
    """The notebook as a page of the site: prose, code, and what it shows."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            forms = output.get("data", {})
            rich = next((forms[kind] for kind in ("image/svg+xml", "text/html") if kind in forms), None)
            if rich:
                parts.append('```{raw} html\n<div class="notebook-output">\n' + "".join(rich) + "\n</div>\n```")
            else:
                parts.append(f"```text\n{text([output])}\n```")
    return "\n\n".join(parts) + "\n"


def main(files: list[Path]) -> None:
    for file in files:
        whole = json.dumps(with_outputs(read(file)), indent=1, ensure_ascii=False, sort_keys=True)
        file.write_text(whole + "\n", encoding="utf-8")
        print(f"ran {file}")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
