"""The commands that give something to start from: example, new."""

from __future__ import annotations

import click

from distagg.cli.commands import Argument, Call, command
from distagg.errors import UsageError
from distagg.examples import EXAMPLES, JOB_KINDS, write_example, write_job
from distagg.reports.terminal import render_table
from distagg.storage.paths import local

FOLDER = "examples and job files"


@command(
    "example",
    Argument(
        "words",
        metavar="[NAME] [DIR]",
        nargs=-1,
        help="an example, and the folder to create (default: NAME); with DIR alone, all examples, in folders below it; "
        f"with nothing, their list. Examples: {', '.join(EXAMPLES)}",
    ),
    cluster=False,
    examples=("distagg example", "distagg example metasearch", "distagg example pairs out/pairs"),
)
def example_command(call: Call, words: tuple[str, ...]) -> None:
    if not words:
        rows = [[name, example.about] for name, example in EXAMPLES.items()]
        about = {name: example.about for name, example in EXAMPLES.items()}
        call.show(about, render_table(["example", "files"], rows, "ll"), note="write one by: distagg example NAME DIR")
        return
    if len(words) > 2:
        raise UsageError(f"found {len(words)} words, expected distagg example NAME DIR")
    if len(words) == 1 and words[0] not in EXAMPLES:
        folders = {name: local(words[0], FOLDER) / name for name in EXAMPLES}
    else:
        folders = {words[0]: local(words[-1], FOLDER)}
    written = {str(folder): write_example(name, folder) for name, folder in folders.items()}
    lines = [f"wrote {', '.join(names)} to {folder}" for folder, names in written.items()]
    if len(folders) == 1:
        ((name, folder),) = folders.items()
        lines += [f"the guide is {folder / name}.md; to try it:", f"  cd {folder}", f"  {EXAMPLES[name].first}"]
    call.show(written, "\n".join(lines))


@command(
    "new",
    Argument(
        "kind",
        type=click.Choice(tuple(JOB_KINDS)),
        help="what the job does:\n\n" + "\n\n".join(f"{name}: {kind.about}" for name, kind in JOB_KINDS.items()),
    ),
    Argument("folder", metavar="[DIR]", required=False, default=".", help="where to write KIND.toml (default: here)"),
    cluster=False,
    examples=("distagg new fusion", "distagg new nightly jobs"),
)
def new_command(call: Call, kind: str, folder: str) -> None:
    target = write_job(kind, local(folder, FOLDER))
    lines = [
        f"wrote {target}: name your files in it, then",
        f"  distagg run {target}",
        f"files to try it on: distagg example {JOB_KINDS[kind].example} DIR",
    ]
    call.show({"job": str(target)}, "\n".join(lines))
