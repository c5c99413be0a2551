"""Pages of the reference: every public name from its docstring, every command from its help."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path

import click

import distagg
from distagg.cli.commands import DISTAGG, SECTIONS

ABOUT = """# Python reference

`import distagg` is instant; each name loads when it is first used. [All models](../models/index.md) have pages of
their own.

"""


def results() -> list[type]:
    """The classes that public functions return and that are not public names themselves."""
    classes: dict[str, type] = {}
    for name in distagg.__all__:
        function = getattr(distagg, name)
        given = typing.get_type_hints(function).get("return") if inspect.isfunction(function) else None
        for kind in (given, *typing.get_args(given)):
            if inspect.isclass(kind) and kind.__module__.startswith("distagg") and kind.__name__ not in distagg.__all__:
                classes[kind.__name__] = kind
    return list(classes.values())


def write_api(folder: Path) -> None:
    """A page for each public name, and for each class of results."""
    folder.mkdir(parents=True)
    functions, classes = [], []
    for name in distagg.__all__:
        value = getattr(distagg, name)
        if name != "MODELS":
            (functions if inspect.isfunction(value) else classes).append((name, f"distagg.{name}", value))
    classes += [(kind.__name__, f"{kind.__module__}.{kind.__name__}", kind) for kind in results()]
    text = ABOUT
    for title, rows in (("Functions", functions), ("Classes", classes)):
        text += f"## {title}\n\n| name | |\n|---|---|\n"
        for name, path, value in rows:
            directive = "autofunction" if inspect.isfunction(value) else "autoclass"
            options = "" if inspect.isfunction(value) else "   :members:\n"
            body = f"# {name}\n\n```{{eval-rst}}\n.. {directive}:: {path}\n{options}```\n"
            (folder / f"{name}{'' if inspect.isfunction(value) else '_class'}.md").write_text(body, encoding="utf-8")
            first = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")
            text += f"| [`{name}`]({name}{'' if inspect.isfunction(value) else '_class'}.md) | {first} |\n"
        text += "\n"
    names = [f"{name}" for name, _, _ in functions] + [f"{name}_class" for name, _, _ in classes]
    text += "\n".join(["```{toctree}", ":hidden:", "", *names, "```", ""])
    (folder / "index.md").write_text(text, encoding="utf-8")


def write_commands(folder: Path) -> None:
    """A page for each command, with the text of its help."""
    folder.mkdir(parents=True)
    context = click.Context(DISTAGG, info_name="distagg", terminal_width=100, max_content_width=100)
    text = "# Commands\n\n`distagg COMMAND --help` prints the same.\n\n"
    for title, commands in SECTIONS.items():
        text += f"## {title}\n\n| command | |\n|---|---|\n"
        for name, (_, about) in commands.items():
            command = DISTAGG.get_command(context, name)
            assert command is not None
            inside = click.Context(command, info_name=name, parent=context, terminal_width=100)
            body = f"# distagg {name}\n\n```text\n{command.get_help(inside)}\n```\n"
            (folder / f"{name}.md").write_text(body, encoding="utf-8")
            text += f"| [`{name}`]({name}.md) | {about} |\n"
        text += "\n"
    names = [name for commands in SECTIONS.values() for name in commands]
    text += "\n".join(["```{toctree}", ":hidden:", "", *names, "```", ""])
    (folder / "index.md").write_text(text, encoding="utf-8")
