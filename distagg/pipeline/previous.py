"""The previous run: its steps are reused where their inputs did not change, and changes since then are summed up.

The key of a step contains everything that its output depends on: its fields, the hashes of its inputs, seed and code.
It is stored in the run directory. If the previous run has the same key for the step, its files are linked, each checked
by its hash. A step that changed runs from the beginning, training too, because weights depend on every query. Only
rankings are reused part by part (``distagg.engine.rank_incremental``). ``scale`` always runs again, because it measures
times.

Changes are those of rankings, of metrics, and of the models' parameters for their experts. Parts of rankings with the
same bytes are only counted; the others are read, some queries at a time, so that memory is bounded by READ_ROWS.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.dataset.manifest import VERIFIED
from distagg.engine.read_rankings import read_rankings
from distagg.engine.saved import Fitted, load_model
from distagg.errors import DistaggError, InputError
from distagg.metrics.changes import TOP, RankChanges, add_changes, add_same, weights_moved
from distagg.pipeline.folder import (
    MEASURE,
    RunFolder,
    code_key,
    difference,
    fingerprint,
    means_of,
    plan_key,
    references,
)
from distagg.pipeline.records import Entry, checked_output, entry_of, record
from distagg.pipeline.spec import Job, Step
from distagg.rankings.files import parts_of
from distagg.storage.atomic import MARKER, digest, staged_directory, staged_file
from distagg.storage.paths import Place, is_found, place
from distagg.storage.sealed import MANIFEST
from distagg.storage.staging import link
from distagg.storage.verified import read_groups

NEVER_REUSED = ("scale",)
READ_ROWS = 10_000_000  # of both rankings, read at once
SHOWN_EXPERTS = 10


@dataclass(frozen=True, slots=True)
class Before:
    """The previous finished run, and the hashes of its files."""

    folder: RunFolder
    files: dict[str, str]  # path in the folder -> SHA-256

    @property
    def name(self) -> str:
        return self.folder.path.name

    @classmethod
    def open(cls, folder: RunFolder) -> Before | None:
        """The previous run, or None if it was deleted or is incomplete."""
        try:
            body = folder.read(MANIFEST)
            if folder.finished and folder.begun:
                return cls(folder, {file["path"]: file["sha256"] for file in body["files"]})
        except (DistaggError, KeyError, TypeError):
            pass
        return None


def find_before(folder: RunFolder) -> Before | None:
    """The run that ``latest`` pointed to when this run started; a resumed run keeps it."""
    if not (folder.path / "before.json").is_file():
        pointer = folder.path.parent / "latest"
        name = os.readlink(pointer) if pointer.is_symlink() else ""
        folder.write("before.json", {"run": name if Path(name).name == name and name != folder.path.name else ""})
    name = folder.read("before.json")["run"]
    return Before.open(RunFolder(folder.path.parent / name)) if name else None


def step_key(job: Job, step: Step, folder: RunFolder) -> dict[str, Any]:
    """Everything that a step's output depends on; its inputs must exist."""
    inputs = {}
    for reference in references(step):
        maker = job.step(reference)
        if maker is not None or is_found(reference):
            inputs[reference] = fingerprint(folder.output(maker) if maker is not None else place(reference))
    values = {"do": step.do, **step.values}
    return {"step": values, "inputs": inputs, "seed": job.seed, "plan": plan_key(), "code": code_key()}


def reuse_step(step: Step, folder: RunFolder, before: Before | None) -> list[str] | None:
    """Reuse a step's output of the previous run: returns None if it was reused, else the reasons why not.

    The reasons are empty if there is no previous run. The step's key must be in the folder already.
    """
    if before is None or step.do in NEVER_REUSED:
        return []
    if not before.folder.step_key_file(step).is_file():
        return ["the previous run had no such step"]
    try:
        then = before.folder.read(f"keys/{step.name}.json")
        notes = before.folder.notes(step)
    except InputError:
        return ["its records in the previous run are damaged"]
    lines = difference(then, folder.read(f"keys/{step.name}.json"))
    if lines:
        return lines
    output = before.folder.output(step)
    try:
        if not is_whole(output, before):
            return ["its output in the previous run is damaged"]
        folder.keep_notes(step, notes)
        recipe = before.folder.recipe_file(step)
        if recipe.is_file():
            folder.recipe_file(step).parent.mkdir(exist_ok=True)
            folder.recipe_file(step).unlink(missing_ok=True)
            link(recipe, folder.recipe_file(step))
        record(folder, step, _entries(output, before))
        link_output(output, folder.output(step))
    except FileNotFoundError:  # deleted in the meantime
        return ["its output in the previous run was deleted"]
    return None


def is_whole(output: Path, before: Before) -> bool:
    """Whether an output consists of the files in the run's manifest, each with its hash."""
    names = {str(file.relative_to(before.folder.path)) for file in _files(output)}
    inside = str(output.relative_to(before.folder.path))
    wanted = {path for path in before.files if path == inside or path.startswith(f"{inside}/")}
    return bool(names) and names == wanted and all(digest(before.folder.path / n) == before.files[n] for n in names)


def _files(output: Path) -> list[Path]:
    """The files of an output: itself, or all in a directory."""
    return [output] if output.is_file() else sorted(f for f in output.rglob("*") if f.is_file() and f.name != VERIFIED)


def _entries(output: Path, before: Before) -> list[Entry]:
    """The files of an output of the previous run, which have been checked, by the names that they get in this run."""
    root = before.folder.path
    return [entry_of(file, root, before.files[str(file.relative_to(root))]) for file in _files(output)]


def link_output(output: Path, target: Path) -> None:
    """Publish the output of a step once more, as links."""
    if output.is_file():
        with staged_file(target) as staging:
            link(output, staging)
        return
    with staged_directory(target) as staging:
        for file in _files(output):
            if file.name != MARKER:
                copy = staging / file.relative_to(output)
                copy.parent.mkdir(parents=True, exist_ok=True)
                link(file, copy)


def changes_since(before: RunFolder, now: RunFolder, job: Job) -> dict[str, Any]:
    """Changes of rankings, metrics and fitted models, by step; omits steps that the previous run did not have."""
    result: dict[str, Any] = {"before": before.path.name, "rankings": {}, "metrics": {}, "models": {}}
    for step in job.steps:
        if not before.output(step).exists() or step.do not in ("rank", "fit", *MEASURE):
            continue
        output = checked_output(now, step)
        try:
            then = checked_output(before, step)
            if step.do == "rank":
                result["rankings"][step.name] = ranking_changes(then, output)
            if step.do in ("fit", "tune"):
                result["models"][step.name] = _model_changes(load_model(then), load_model(output))
            if step.do in MEASURE:
                result["metrics"][step.name] = _metric_changes(means_of(then, step), means_of(output, step))
        # Another kind of step in the previous run, damaged, or deleted in the meantime.
        except (DistaggError, OSError, KeyError, ValueError, TypeError) as error:
            result.setdefault("unknown", {})[step.name] = str(error)
    return result


def ranking_changes(before: Path, now: Path, rows: int = READ_ROWS) -> dict[str, Any]:
    """The differences between two rankings on disk."""
    total = RankChanges()
    old, new = _ranking_parts(before), _ranking_parts(now)
    same = [sha256 for sha256 in new if sha256 in old]
    for sha256 in same:
        add_same(total, read_groups(new[sha256][0], None, ["query"])["query"])
    differing = [[part for sha256, part in parts.items() if sha256 not in same] for parts in (old, new)]
    passes = max(1, math.ceil(sum(count for side in differing for _, count in side) / rows))
    for number in range(passes):
        tables = [_gathered((file for file, _ in side), number, passes) for side in differing]
        add_changes(total, tables[0], tables[1])
    return total.to_dict()


def _ranking_parts(output: Path) -> dict[str, tuple[Place, int]]:
    """Files of rankings and their row counts, by hash; a ranking in a single file is one part."""
    if not output.is_dir():
        return {str(output): (output, 0)}
    return {part.sha256: (part.file, part.rows) for part in parts_of(output)}


def _gathered(files: Iterator[Place], number: int, passes: int) -> pa.Table:
    """Rows of the queries of one pass."""
    columns = {"query": pa.string(), "item": pa.string(), "rank": pa.int64()}
    pieces = [pa.schema(columns).empty_table()]
    for file in files:
        table = read_rankings(file)
        if "rank" not in table.column_names:
            return table  # a TREC file is one part, in one pass
        table = table.select(list(columns))
        if passes > 1:
            coded = table["query"].combine_chunks().dictionary_encode()
            turn = np.array([zlib.crc32(name.encode()) % passes == number for name in coded.dictionary.to_pylist()])
            table = table.filter(pa.array(turn[coded.indices.to_numpy()]))
        pieces.append(table.cast(pieces[0].schema))
    return pa.concat_tables(pieces)


def _metric_changes(before: dict[str, dict[str, float]], now: dict[str, dict[str, float]]) -> dict[str, Any]:
    return {
        name: {
            metric: {"before": before[name][metric], "now": value}
            for metric, value in values.items()
            if metric in before[name]
        }
        for name, values in now.items()
        if name in before
    }


def _model_changes(before: Fitted, now: Fitted) -> dict[str, Any]:
    """For arrays with a row per expert: the overall change, and the experts that changed most."""
    common = [name for name in now.experts if name in set(before.experts)]
    at = [{name: n for n, name in enumerate(one.experts)} for one in (before, now)]
    rows = [np.array([one[name] for name in common], dtype=np.int64) for one in at]
    arrays = {}
    for name in sorted(before.params):
        if not name.startswith("expert_") or name not in now.params:
            continue
        was, is_now = (
            np.asarray(one.params[name], dtype=float)[mine] for one, mine in zip((before, now), rows, strict=True)
        )
        if was.shape != is_now.shape:
            continue
        each = np.sqrt(((is_now - was) ** 2).reshape(len(common), -1).sum(axis=1))
        far = np.argsort(-each, kind="stable")[:SHOWN_EXPERTS]
        arrays[name] = {
            **weights_moved(was, is_now),
            "experts": [
                {
                    "expert": common[n],
                    "moved": float(each[n]),
                    "before": was[n].ravel().tolist(),
                    "now": is_now[n].ravel().tolist(),
                }
                for n in far
                if each[n] > 0
            ],
        }
    return {
        "arrays": arrays,
        "same model": before.model == now.model,
        "new": sorted(set(now.experts) - set(common)),
        "vanished": sorted(set(before.experts) - set(common)),
    }


def summary(changes: dict[str, Any]) -> str:
    """A one-line summary of the changes."""
    words = [_ranking_summary(name, change) for name, change in changes["rankings"].items()]
    for models in changes["metrics"].values():
        for model, metrics in models.items():
            moved = {name: 100 * (v["now"] - v["before"]) for name, v in metrics.items() if v["now"] != v["before"]}
            words += [f"{model} {', '.join(f'{name} {value:+.2f}' for name, value in moved.items())}"] if moved else []
    for name, model in changes["models"].items():
        words += [
            f"{name} {array} moved {100 * one['moved']:.1f}%" for array, one in model["arrays"].items() if one["moved"]
        ]
    return f"since {changes['before']}: " + ("; ".join(words) or "nothing to compare")


def _ranking_summary(name: str, change: dict[str, Any]) -> str:
    queries = change["queries"]
    total = queries["same"] + queries["changed"]
    if not queries["changed"] and not queries["new"] and not queries["vanished"]:
        return f"{name} the same in all {total:,} queries"
    alike = f"tau {change['tau']:.3f}, " if change["tau"] is not None else ""
    alike += f"overlap@{TOP} {change[f'overlap@{TOP}']:.3f}, " if total else ""
    return (
        f"{name} changed in {queries['changed']:,} of {total:,} queries "
        f"({alike}another on top in {change['another on top']:,}), "
        f"{queries['new']:,} new, {queries['vanished']:,} vanished"
    )
