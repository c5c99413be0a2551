"""Writes the API reference from docstrings: ``python jobs/guides/reference.py FOLDER`` (``make docs``)."""

from __future__ import annotations

import sys
from pathlib import Path

import pdoc

import distagg


def main(folder: Path) -> None:
    for name in distagg.__all__:
        setattr(distagg, name, getattr(distagg, name))  # they load on first use, and pdoc only looks
    pdoc.render.configure(docformat="numpy", show_source=False)
    pdoc.pdoc("distagg", r"!distagg\.", output_directory=folder)
    print(f"wrote {folder / 'distagg.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
