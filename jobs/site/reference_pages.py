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
    public = [(name, f"distagg.{name}", getattr(distagg, name)) for name in distagg.__all__ if name != "MODELS"]
    functions = [row for row in public if inspect.isfunction(row[2])]
    classes = [row for row in public if not inspect.isfunction(row[2])]
    classes += [(kind.__name__, f"{kind.__module__}.{kind.__name__}", kind) for kind in results()]
    text = ABOUT
    for title, rows, directive, ending in (
        ("Functions", functions, ".. autofunction:: {}\n", ""),
        ("Classes", classes, ".. autoclass:: {}\n   :members:\n", "_class"),  # Board and board may not share a file
    ):
        text += f"## {title}\n\n| name | |\n|---|---|\n"
        for name, path, value in rows:
            body = f"```{{eval-rst}}\n{directive.format(path)}```\n"
            write_page(folder / f"{name}{ending}.md", name, "[Python reference](index.md)", body)
            first = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")
            text += f"| [`{name}`]({name}{ending}.md) | {first} |\n"
        text += "\n"
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
            body = f"```text\n{command.get_help(inside)}\n```\n"
            write_page(folder / f"{name}.md", f"distagg {name}", "[All commands](index.md)", body)
            text += f"| [`{name}`]({name}.md) | {about} |\n"
        text += "\n"
    (folder / "index.md").write_text(text, encoding="utf-8")


def write_page(file: Path, title: str, up: str, body: str) -> None:
    """A page that is reached from the index of its folder, not from the side bar, which would be long."""
    file.write_text(f"---\norphan: true\n---\n# {title}\n\n{up}\n\n{body}", encoding="utf-8")
