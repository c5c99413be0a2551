"""The peers' own environment, .venv-peers, made on first use from peers.txt; theirs never meet ours."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

PEERS = Path(__file__).parent / "peers.txt"
ENVIRONMENT = Path(__file__).parents[2] / ".venv-peers"


def peers_python() -> str:
    """The interpreter of .venv-peers, which is made or brought up to date first."""
    python = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin") / "python"
    mark, wanted = ENVIRONMENT / "peers.sha256", hashlib.sha256(PEERS.read_bytes()).hexdigest()
    if not (mark.exists() and mark.read_text() == wanted):
        print(f"making {ENVIRONMENT.name} with {', '.join(_packages())}", file=sys.stderr, flush=True)
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        (ENVIRONMENT / ".gitignore").write_text("*\n")
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(PEERS)]
        subprocess.run(install, check=True)
        mark.write_text(wanted)
    return str(python)


def _packages() -> list[str]:
    return [line for line in PEERS.read_text().splitlines() if line and not line.startswith("#")]
