"""Small jobs on small data in several chunks."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from distagg.dataset import write_dataset
from distagg.sources.synthetic import SyntheticSource

CHUNK = 2000


def write_small(folder: Path) -> Path:
    """A labelled dataset of about a dozen chunks of CHUNK entries."""
    write_dataset(SyntheticSource(queries=120, shape="mq2008", seed=3), folder, block_entries=CHUNK)
    return folder


def ranking_job(dataset: Path, **more: Any) -> dict[str, Any]:
    """Rank in parts, then evaluate."""
    steps = {
        "ranked": {"do": "rank", "model": "rrf", "dataset": str(dataset), "chunk_entries": CHUNK},
        "checked": {"do": "evaluate", "rankings": "ranked", "dataset": str(dataset), "metrics": ["ndcg@5"]},
    }
    return {"name": "ranking", "steps": steps, **more}


def training_job(dataset: Path, **more: Any) -> dict[str, Any]:
    """Train in rounds, then rank."""
    settings = {"rounds": 8, "patience": 100, "sample": 3}
    steps = {
        "model": {"do": "fit", "model": "crf", "dataset": str(dataset), "settings": settings},
        "ranked": {"do": "rank", "model": "model", "dataset": str(dataset), "chunk_entries": CHUNK},
    }
    return {"name": "training", "checkpoints": {"rounds": 2}, "steps": steps, **more}


def fingerprints(run: Path) -> dict[str, str]:
    """The bytes that must be the same for every way to the end: outputs, figures, manifest."""
    files = [*sorted(file for file in (run / "output").rglob("*") if file.is_file())]
    files += [run / "metrics.json", run / "manifest.json", run / "_SUCCESS"]
    return {str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
