"""A headless Chromium, driven through a pipe in its own protocol (CDP): a message is JSON and a zero byte."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 90.0  # that an answer may take; the machine may be busy
BAD = ("error", "warning", "assert")
OPEN = "document.querySelectorAll('details').forEach(one => one.open = true)"


def chromium() -> str | None:
    """The program's path, if it is installed."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


class Browser:
    """One process with one tab; a context manager. ``folder`` takes its profile."""

    def __init__(self, program: str, folder: Path) -> None:
        self.said: list[str] = []  # console errors and warnings
        self.asked: list[str] = []  # addresses that were requested
        self._loaded, self._number, self._rest = False, 0, b""
        self._session: str | None = None
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (theirs_in, theirs_out)]
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        arguments = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
            "--hide-scrollbars", f"--user-data-dir={folder}", "about:blank",
        ]  # fmt: skip
        placed = [
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, high[0], 3),
            (os.POSIX_SPAWN_DUP2, high[1], 4),
        ]
        self._process = os.posix_spawn(program, arguments, os.environ, file_actions=placed, setpgroup=0)
        for fd in high:
            os.close(fd)

    def __enter__(self) -> Browser:
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)

    def open(self, page: Path, width: int, height: int = 900, *, query: str = "") -> None:
        """Load a file at a width, with everything folded opened; ``said`` and ``asked`` begin anew."""
        self.said, self.asked, self._loaded = [], [], False
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self._ask("Page.navigate", url=page.as_uri() + query)
        while not self._loaded:
            self._hear()
        self.evaluate(OPEN)

    def evaluate(self, script: str) -> Any:
        """The value of a script, as JSON."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, file: Path) -> None:
        """The whole page as PNG."""
        taken = self._ask("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(taken["data"]))

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._number:
                assert "error" not in heard, (method, heard["error"])
                return heard["result"]

    def _hear(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(end - time.monotonic(), 0.0))
            got = os.read(self._in, 1 << 20) if ready else b""
            if not got:
                raise RuntimeError(f"chromium {'ended' if ready else f'did not answer for {SECONDS:.0f} s'}")
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\0")
        heard = json.loads(line)
        self._note(heard.get("method"), heard.get("params", {}))
        return heard

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in BAD:
            self.said.append(str(params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.said.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in BAD:
            self.said.append(params["entry"]["text"])
