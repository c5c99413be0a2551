"""Memory: what a process may use, and models that would need more for the largest query are refused beforehand."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np

from distagg.dataset.dataset import Dataset
from distagg.engine.ask import ask_workers
from distagg.engine.runner import InlineRunner, Runner
from distagg.errors import UsageError
from distagg.models.base import Model

SMALL = 256 << 20  # bytes that need no look at the machine
LINEAR = ("rrf", "borda", "combsum", "mc1")  # models whose memory grows with the entries alone
CGROUPS = Path("/sys/fs/cgroup")


def usable_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or the limit of its control group or of its own."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_group_limits()]
    own = resource.getrlimit(resource.RLIMIT_AS)[0]
    return min([*limits, own] if own != resource.RLIM_INFINITY else limits)


def _group_limits() -> list[int]:
    """The limits of this process's control group and of those above it, in either version of control groups."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    own = [line.split(":", 2)[2].lstrip("/") for line in lines if line.split(":", 2)[1:2] in ([""], ["memory"])]
    files = [CGROUPS / "memory.max", CGROUPS / "memory" / "memory.limit_in_bytes"]
    for group in own:
        for folder in (Path(group), *Path(group).parents):
            files += [CGROUPS / folder / "memory.max", CGROUPS / "memory" / folder / "memory.limit_in_bytes"]
    found = []
    for file in dict.fromkeys(files):
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    return found


def needed_memory(model: Model, dataset: Dataset) -> tuple[int, int]:
    """Items of the largest query that a model compares, and the bytes that it needs for them."""
    about = dataset.manifest
    items = about.query_sizes.get("max", 0)
    pool = getattr(model, "pool", 0)
    if about.kind == "lists" and about.positive and pool:
        items = min(items, pool)
    pairs = items * items
    if model.observed_pairs_only:
        if about.partition == "expert":
            return items, 0  # it may count list by list
        longest = min(items, about.list_lengths.get("max", 0)) ** 2
        pairs = min(pairs, about.entries if about.kind == "pairs" else longest * about.experts)
    return items, pairs * model.square_bytes


def check_memory(model: Model, dataset: Dataset, runner: Runner | None = None) -> None:
    """Refuse a model that would need more memory for the largest query than there is, where it would run."""
    items, needed = needed_memory(model, dataset)
    if needed <= SMALL:
        return
    client = (runner or InlineRunner()).client
    answers = ask_workers(client, usable_memory) if client is not None else {}
    usable = min(answers.values(), default=usable_memory())
    if needed <= usable:
        return
    fits = int((usable / model.square_bytes) ** 0.5)
    options = []
    if dataset.manifest.kind == "lists" and dataset.manifest.positive:
        usual = getattr(type(model)(), "pool", 0)
        options.append(f"compare fewer of them (-p pool=N; {fits:,} fit, and the default is {usual:,})")
    able = [name for name in LINEAR if dataset.manifest.kind == "lists" or name == "borda"]
    options.append(f"take a model whose memory grows with the entries alone: {', '.join(able)}")
    raise UsageError(
        f"{model.name} compares all {items:,} items of query '{_largest(dataset)}' with each other, which needs "
        f"{needed / 1e9:,.1f} GB of memory, and there are {usable / 1e9:,.1f} GB; {', or '.join(options)}"
    )


def _largest(dataset: Dataset) -> str:
    """The name of the largest query; reads the data up to it."""
    wanted = dataset.manifest.query_sizes["max"]
    for chunk in dataset.chunks(ids=False):
        sizes = np.diff(chunk.item_offsets)
        if len(sizes) and int(sizes.max()) == wanted:
            return str(chunk.query_ids[int(sizes.argmax())])
    return "?"
