"""Figures that outlive the driver: what was measured before a crash is not measured again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distagg.dataset.whole import write_whole


@dataclass(frozen=True, slots=True)
class Kept:
    """Figures in a folder; ``say`` is told of those that are being measured."""

    folder: Path
    say: Callable[..., None]

    def __call__(self, name: str, measure: Callable[[], Any]) -> Any:
        file = self.folder / f"{name}.json"
        if not file.is_file():
            self.say("measuring", what=name)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps(measure()).encode())
        return json.loads(file.read_text(encoding="utf-8"))
