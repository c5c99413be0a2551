"""The command ``models``: a table of all models, or everything about one."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

from distagg.cli.commands import Argument, Call, command
from distagg.cli.options import complete_model
from distagg.errors import unknown
from distagg.models import ALIASES, MODELS, family_of, known_name
from distagg.models.base import Model

WIDTH = 80  # columns of a terminal


@command(
    "models",
    Argument("name", metavar="[MODEL]", required=False, shell_complete=complete_model, help="explain this model"),
    cluster=False,
    examples=("distagg models", "distagg models crf"),
)
def models_command(call: Call, name: str | None) -> None:
    own = known_name(name) if name else None
    if own and own not in MODELS:
        raise unknown("model", own, MODELS, aliases=ALIASES)
    rows = [_row(model) for model in ([MODELS[own]] if own else MODELS.values())]
    if name:
        call.show(rows, _explain_model(name, rows[0]))
        return
    aliases = "".join(f"\n{alias}: alias of {model}" for alias, model in ALIASES.items())
    more = "* learns from labels\n'distagg models MODEL' explains one, with its cost, paper and parameters"
    call.show(rows, f"{_models_table(rows)}\n{aliases}\n\n{more}")


def _row(model: type[Model]) -> dict[str, Any]:
    return {
        "name": model.name,
        "family": family_of(model.name),
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
    """Models by family, within the width of a terminal: long summaries go on in the next line."""
    families: dict[str, list[str]] = {}
    wide = max(len(row["name"]) for row in rows) + len("*  ")
    for row in rows:
        name = row["name"] + ("*" if row["kind"] == "supervised" else "")
        lines = textwrap.wrap(row["summary"], WIDTH - wide - 2, break_on_hyphens=False) or [""]
        families.setdefault(row["family"], []).extend(
            f"  {name if number == 0 else '':<{wide}}{line}" for number, line in enumerate(lines)
        )
    return "\n\n".join(f"{family}:\n" + "\n".join(lines) for family, lines in families.items())


def _explain_model(name: str, row: dict[str, Any]) -> str:
    """Summary, kind, cost, paper and parameters of one model, within the width of a terminal."""
    alias = [f"{name}: alias of {row['name']}"] if name.lower() != row["name"] else []
    about = [f"{row['name']}: {row['summary']}", f"{row['kind']}; cost: {row['cost']}; paper: {row['paper']}"]
    lines = alias + [line for text in about for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]
    for parameter, meaning in row["parameters"].items():
        lines.append(f"  {parameter} = {meaning['default']}")
        lines += textwrap.wrap(meaning["help"], WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)
