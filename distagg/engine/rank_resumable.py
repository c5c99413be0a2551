"""Resumable ranking: parts that were finished before a crash are reused, not ranked again.

Workers write every part to a staging folder under the name of its attempt, and then a JSON sidecar file with its row
count and SHA-256. For each part the driver accepts the first attempt whose bytes match the sidecar, ranks the missing
parts, and publishes all together. A staging folder belongs to one model, its parameters, one dataset and one format; a
folder that was created for anything else is emptied.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import CHUNK_ENTRIES, Dataset
from distagg.engine.fitting.checkpoint import no_events
from distagg.engine.fitting.fit import Through
from distagg.engine.progress import Progress, silent
from distagg.engine.rank import NOTHING_MORE, ready, write_task
from distagg.engine.rank_incremental import Earlier, NotedPart, Recipe, Reuse, learned, recipe_of
from distagg.engine.rank_options import Shown
from distagg.engine.runner import Runner, Work, as_runner
from distagg.engine.saved import expert_table
from distagg.errors import InputError
from distagg.models import Model, Params
from distagg.models.base import collected_notes, not_converged
from distagg.rankings.files import FITS, Format, RankedPart, Written, publish_directory, publish_file
from distagg.storage.atomic import digest, staged_directory, staged_file, sync, write_whole
from distagg.storage.paths import Place, Store, place
from distagg.storage.sealed import read_sealed, sealed
from distagg.storage.staging import claim, link_or_copy, remove


def rank_in_parts(
    target: Place,
    staging: Place,
    model: Model,
    params: Params,
    dataset: Dataset,
    *,
    fmt: Format = "parquet",
    chunk_entries: int | None = None,
    shown: Shown = NOTHING_MORE,
    through: Through | None = None,
    runner: Runner | None = None,
    progress: Progress = silent,
    say: Callable[..., None] = no_events,
    before_publishing: Callable[[list[str]], None] = lambda notes: None,
    record: Callable[[str, int], None] = lambda sha256, size: None,
    reuse: Reuse | None = None,
) -> int:
    """Write rankings to ``target``, keeping finished parts in ``staging`` until then; returns the number of rows.

    ``shown`` and ``through`` are as in ``rank_to``. ``before_publishing`` is called with the models' notes (not
    converged), including those of reused parts; ``record`` with the SHA-256 and size of a ranking in one file (TREC,
    CSV), before it appears. ``reuse`` copies parts of an earlier ranking with the same inputs, reports why the others
    are ranked, and writes the recipe.
    """
    runner = as_runner(runner)
    top, columns = shown.top, _asked(shown)
    known, refs, shown = ready(
        model, params, dataset, runner, shown=shown, through=through, chunk_entries=chunk_entries or CHUNK_ENTRIES
    )
    claim(staging, _purpose(model, params, dataset, fmt, {**columns, "through": _completion(through)}, len(refs)))
    parts, damaged = accepted_parts(staging)
    for name in damaged:
        say("part damaged", file=name)
    resumed = len(parts)
    recipe = recipe_of(model, params, dataset, refs, fmt, top, runner, reuse.context) if reuse is not None else None
    if reuse is not None and recipe is not None:
        _take_earlier(reuse, recipe, parts, staging, say)
    missing = [n for n in range(len(refs)) if n not in parts]
    say("parts", total=len(refs), taken=resumed, missing=len(missing))
    work = Work(_part_task, (model, known, shown, str(staging.resolve()), fmt, missing), ids=True)
    done = runner.map(work, [refs[n] for n in missing], progress)
    for n, (part, notes) in zip(missing, done, strict=True):
        parts[n] = (part, notes)
        say("part", number=n, rows=part.rows)
    ordered = [parts[n] for n in range(len(refs))]
    notes = list(dict.fromkeys(note for _, part_notes in ordered for note in part_notes))
    before_publishing(notes)
    if reuse is not None and recipe is not None:
        recipe.write(reuse.recipe, [(_unnamed(part), part_notes) for part, part_notes in ordered])
    experts = expert_table(model, params, dataset.experts)
    _publish(target, staging, [part for part, _ in ordered], fmt, model, dataset, experts, record)
    remove(staging, quietly=True)  # a worker that lost its driver may still be writing
    for note in notes:
        not_converged(note)
    return sum(part.rows for part, _ in ordered)


def _take_earlier(
    reuse: Reuse, recipe: Recipe, parts: dict[int, NotedPart], staging: Place, say: Callable[..., None]
) -> None:
    """Add the parts that an earlier ranking has, and report why the rest must be ranked. Local disks only."""
    earlier = Earlier.open(reuse)
    if earlier is None or isinstance(staging, Store):
        return
    then = earlier.find(recipe)
    reused = 0
    for n in range(len(recipe.blocks)):
        if n in parts:
            continue
        reused_part = earlier.take(then[n], staging, n) if n in then else None
        if reused_part is None:
            say("part anew", number=n, why="the earlier part is damaged" if n in then else earlier.why(recipe, n))
            continue
        _write_sidecar(staging, n, *reused_part)
        parts[n] = reused_part
        reused += 1
    say("parts reused", count=reused, of=len(recipe.blocks))


def accepted_parts(staging: Place) -> tuple[dict[int, NotedPart], list[str]]:
    """For each part the first attempt that matches its sidecar file, with its notes; and the damaged attempts."""
    parts: dict[int, NotedPart] = {}
    damaged = []
    sidecars: list[Place] = sorted([*staging.glob("part-*.json")], key=str)
    for sidecar in sidecars:
        try:
            body = read_sealed(sidecar)
            fits = Written(**body["fits"]) if body["fits"] else None
            part = RankedPart(Written(**body["ranking"]), fits, tuple(body["columns"]), body["unfinished"])
            part = dataclasses.replace(part, coefficients=tuple(body.get("coefficients", ())))
            whole = all(digest(staging / file.attempt) == file.sha256 for file in (part.ranking, fits) if file)
        except (OSError, InputError, ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            damaged.append(sidecar.stem)
            sidecar.unlink()
        elif body["number"] not in parts:
            parts[body["number"]] = (part, body["notes"])
    return parts, damaged


def _part_task(chunk: Chunk, index: int, payload: tuple[Any, ...]) -> NotedPart:
    model, known, shown, staging, fmt, numbers = payload
    number, folder = numbers[index], place(staging)
    with collected_notes() as notes:
        part = write_task(chunk, number, (model, known, shown, staging, fmt))
    for written in (part.ranking, part.fits):
        if written is not None:
            sync(folder / written.attempt)
    _write_sidecar(folder, number, part, notes)
    return part, notes


def _write_sidecar(folder: Place, number: int, part: RankedPart, notes: list[str]) -> None:
    sidecar = {"number": number, "notes": notes, **dataclasses.asdict(part)}
    write_whole(folder / f"{part.ranking.attempt}.json", sealed(sidecar))


def _unnamed(part: RankedPart) -> RankedPart:
    """The part without the names of its attempts, which differ from run to run."""
    fits = dataclasses.replace(part.fits, attempt="") if part.fits is not None else None
    return dataclasses.replace(part, ranking=dataclasses.replace(part.ranking, attempt=""), fits=fits)


def _publish(
    target: Place,
    staging: Place,
    parts: list[RankedPart],
    fmt: Format,
    model: Model,
    dataset: Dataset,
    experts: pa.Table,
    record: Callable[[str, int], None],
) -> None:
    if fmt != "parquet":
        with staged_file(target) as file:
            record(*publish_file(staging, parts, file, fmt))
        return
    with staged_directory(target) as folder:
        if any(part.fits for part in parts):
            (folder / FITS).mkdir()
        for part in parts:
            for written in (part.ranking, part.fits):
                if written is not None:
                    link_or_copy(
                        staging / written.attempt, folder / written.attempt
                    )  # a link: staging stays complete if the driver dies
        converged = not any(part.unfinished for part in parts)
        about = {"model": model.name, "queries": dataset.manifest.queries, "converged": converged}
        publish_directory(folder, parts, about, experts)


def _asked(shown: Shown) -> dict[str, Any]:
    """The columns that a user asked for, without what the engine filled in."""
    return {name: getattr(shown, name) for name in ("support", "least", "top", "titles", "resamples", "seed")}


def _completion(through: Through | None) -> list[str]:
    """A completion of ratings and a hash of what it learned."""
    return [] if through is None else [repr(through[0]), learned(through[1])]


def _purpose(model: Model, params: Params, dataset: Dataset, fmt: Format, columns: dict[str, Any], parts: int) -> bytes:
    """What the staged parts depend on, as JSON."""
    body = {
        "model": model.name,
        "settings": dataclasses.asdict(model),
        "params": learned(params),
        "format": fmt,
        "columns": columns,
        "dataset": hashlib.sha256(dataset.manifest.to_json().encode()).hexdigest(),
        "selection": repr(dataset.where),
        "parts": parts,
    }
    return json.dumps(body, sort_keys=True).encode()
