"""A server that speaks S3 on loopback (moto's), as a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60
BUCKET = "s3://distagg-tests"
WITHOUT_PROFILE = {
    "AWS_ACCESS_KEY_ID": "somebody",
    "AWS_SECRET_ACCESS_KEY": "something",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


def command() -> str | None:
    """The server's program: DISTAGG_S3_SERVER, or that of .venv-s3, which 'make test' makes."""
    made = Path(__file__).parents[1] / ".venv-s3" / "bin" / "moto_server"
    return os.environ.get("DISTAGG_S3_SERVER") or (str(made) if made.exists() else None)


@contextmanager
def serving(program: str) -> Iterator[str]:
    """The address of a server that ends with the block."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    server = subprocess.Popen(
        [program, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None, "the server ended"
                assert time.monotonic() < deadline, "the server did not start"
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


def ask_for_credentials(address: str, *, wanted: bool) -> None:
    """From now on the server refuses keys that it does not know, or takes any."""
    body = b"0" if wanted else b"inf"
    asked = urllib.request.Request(f"{address}/moto-api/reset-auth", data=body, headers={"Content-Type": "text/plain"})
    urllib.request.urlopen(asked, timeout=10).close()
