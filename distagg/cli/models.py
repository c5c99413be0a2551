"""The command ``models``: a table of all models, or everything about one."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

from distagg.cli.commands import Argument, Call, command
from distagg.errors import unknown
from distagg.models import ALIASES, MODELS, known_name
from distagg.models.base import Model
from distagg.reports.terminal import render_table

WIDTH = 80  # columns of a terminal


@command(
    "models",
    Argument("name", metavar="[MODEL]", required=False, help="explain this model and its parameters"),
    cluster=False,
    examples=("distagg models", "distagg models crf"),
)
def models_command(call: Call, name: str | None) -> None:
    own = known_name(name) if name else None
    if own and own not in MODELS:
        raise unknown("model", own, MODELS)
    rows = [_row(model) for model in ([MODELS[own]] if own else MODELS.values())]
    if name:
        call.show(rows, _explain_model(name, rows[0]))
        return
    aliases = "".join(f"\n{alias}: alias of {model}" for alias, model in ALIASES.items())
    more = "'distagg models MODEL' explains one, with its cost, paper and parameters"
    call.show(rows, f"{_models_table(rows)}\n{aliases}\n\n{more}")


def _row(model: type[Model]) -> dict[str, Any]:
    return {
        "name": model.name,
        "kind": "supervised" if model.supervised else "unsupervised",
        "cost": model.cost,
        "takes": list(model.inputs),
        "summary": model.summary,
        "paper": model.paper,
        "aliases": [alias for alias, other in ALIASES.items() if other == model.name],
        "parameters": {
            field.name: {
                "default": field.default,
                "help": field.metadata["help"],
                "choices": list(field.metadata["choices"]),
            }
            for field in dataclasses.fields(model)
        },
    }


def _models_table(rows: list[dict[str, Any]]) -> str:
    """Name, kind and summary of models, within the width of a terminal: long summaries go on in the next line."""
    taken = max(len(row["name"]) for row in rows) + max(len(row["kind"]) for row in rows) + 2 * len("  ")
    room = max(WIDTH - taken, WIDTH // 4)
    body = []
    for row in rows:
        first, *more = textwrap.wrap(row["summary"], room) or [""]
        body += [[row["name"], row["kind"], first], *(["", "", line] for line in more)]
    return render_table(["model", "kind", "summary"], body, "lll")


def _explain_model(name: str, row: dict[str, Any]) -> str:
    """Summary, kind, cost, paper and parameters of one model, within the width of a terminal."""
    alias = [f"{name}: alias of {row['name']}"] if name.lower() != row["name"] else []
    about = [f"{row['name']}: {row['summary']}", f"{row['kind']}; cost: {row['cost']}; paper: {row['paper']}"]
    lines = alias + [line for text in about for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]
    for parameter, meaning in row["parameters"].items():
        lines.append(f"  {parameter} = {meaning['default']}")
        lines += textwrap.wrap(meaning["help"], WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)
