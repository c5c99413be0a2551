"""The kinds of steps: each reads its inputs, calls the engine and publishes its output."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distagg.dataset.dataset import Dataset
from distagg.dataset.expand import expand_dataset
from distagg.engine.compare import DEFAULT_METRICS, compare
from distagg.engine.complete import USER_METRICS, evaluate_users, fit_completion
from distagg.engine.fitting.checkpoint import Checkpoints
from distagg.engine.fitting.fit import Goal, Through, fit, most_steps, tell_pool
from distagg.engine.fitting.folds import count_folds
from distagg.engine.fitting.search import differing, search, variants
from distagg.engine.fitting.tune import tune
from distagg.engine.importing import expected_rows, import_dataset, import_options
from distagg.engine.leaderboard import Board, board_model, boards, boards_by, refuse_empty
from distagg.engine.leaderboard import as_json as board_json
from distagg.engine.progress import metered
from distagg.engine.rank_incremental import Reuse
from distagg.engine.rank_options import Shown
from distagg.engine.rank_resumable import rank_in_parts
from distagg.engine.read_rankings import read_rankings
from distagg.engine.runner import Runner
from distagg.engine.saved import Fitted, load_model, save_model
from distagg.engine.tracking import tell_evaluation, tell_fit
from distagg.errors import UsageError
from distagg.metrics import evaluate_rankings
from distagg.models import completion_named, is_model, model_named
from distagg.models.base import collected_notes, not_converged
from distagg.pipeline.boards import write_board, write_table
from distagg.pipeline.fields import board_settings, viewed
from distagg.pipeline.folder import MEASURE, Kept, RunFolder, as_json, code_key, measured
from distagg.pipeline.growing import addition
from distagg.pipeline.previous import Before, link_output
from distagg.pipeline.records import checked_output, entry_of, record, record_body
from distagg.pipeline.scale import scale
from distagg.pipeline.spec import Job, Step
from distagg.rankings.files import safe_format
from distagg.storage.atomic import staged_directory, staged_file
from distagg.storage.paths import Place, place
from distagg.storage.sealed import MANIFEST, sealed


@dataclass(frozen=True, slots=True)
class Site:
    """The context of a step: the job, its run directory, the runner and the previous run."""

    job: Job
    folder: RunFolder
    runner: Callable[[], Runner]  # called by steps that need it, so that a cluster starts only if necessary
    before: Before | None = None
    among: bool = False  # whether the run belongs to the series of the job's runs in one folder

    def path(self, reference: str) -> Place:
        """The path that a field refers to: an earlier step's output, or a path."""
        step = self.job.step(reference)
        return self.folder.output(step) if step is not None else place(reference)

    def dataset(self, reference: str) -> Dataset:
        return Dataset.open(self.path(reference))

    def say(self, step: Step) -> Callable[..., None]:
        return lambda event, **about: self.folder.say(event, step=step.name, **about)


def do_import(step: Step, site: Site) -> None:
    values, target = step.values, site.folder.output(step)
    files, base = values["files"], None
    if values["append"]:
        added = addition(step, site.before)
        files, base = added.files, added.base
        added.write(site.folder, step)
        if base is not None:
            site.say(step)("added", files=len(files), run=site.before.name if site.before else "")
            if not files:
                link_output(base, target)
                return
    rows = expected_rows(values["source"], files)
    with metered(f"{step.name}, rows read and written", rows) as progress:
        import_dataset(
            values["source"],
            files,
            target,
            base=base,
            runner=site.runner(),
            progress=progress,
            **import_options(values),
        )


def do_expand(step: Step, site: Site) -> None:
    dataset, times = site.dataset(step.values["dataset"]), {k: step.values[k] for k in ("experts", "items")}
    total = dataset.manifest.entries * times["experts"] * times["items"]
    with metered(f"{step.name}, entries", total) as progress:
        expand_dataset(dataset, site.folder.output(step), **times, progress=progress)


def do_fit(step: Step, site: Site) -> None:
    values, runner = step.values, site.runner()
    dataset = site.dataset(values["dataset"])
    valid = site.dataset(values["valid"]) if "valid" in values else None
    goal, folds = Goal(values["goal"], values.get("protocol")), values.get("folds")
    models = variants(values["model"], values["settings"], tries=values.get("tries"), seed=site.job.seed)
    keeper = Checkpoints(site.folder.checkpoints(step), **site.job.checkpoints, say=site.say(step))
    model, tried = models[0], []
    if len(models) > 1:
        with metered(f"{step.name}, fits", len(models) * count_folds(folds)) as progress:
            worth = search(models, dataset, valid=valid, folds=folds, goal=goal, runner=runner, progress=progress)
        model = models[int(worth.argmax())]
        tried = [{**row, goal.metric: float(v)} for row, v in zip(differing(models), worth, strict=True)]
    tell_pool(model, dataset)
    began = time.perf_counter()
    with (
        metered(f"{step.name}, {model.name}", most_steps(model, dataset), at_most=True) as progress,
        collected_notes() as notes,
    ):
        params = fit(model, dataset, valid=valid, goal=goal, runner=runner, progress=progress, keeper=keeper)
    site.folder.keep_notes(step, notes)
    fitted = Fitted(model, params, dataset.experts)
    tell_fit(fitted, goal.metric, time.perf_counter() - began, str(dataset.path or ""))
    about = {"goal": values["goal"], "tried": tried}
    save_model(site.folder.output(step), fitted, about)
    _repeat(notes)


def do_tune(step: Step, site: Site) -> None:
    values = step.values
    fits = len(values["models"]) + len(values.get("beside", ())) * count_folds(values["folds"])
    with metered(f"{step.name}, rules and fits", fits) as progress, collected_notes() as notes:
        tuned = tune(
            site.dataset(values["dataset"]),
            values["models"],
            folds=values["folds"],
            metric=values["goal"],
            metrics=values.get("metrics", ()),
            beside=values.get("beside", ()),
            product=values.get("product"),
            protocol=values.get("protocol"),
            seed=site.job.seed,
            runner=site.runner(),
            progress=progress,
        )
    site.folder.keep_notes(step, notes)
    about = {"goal": values["goal"], "tuned": tuned.as_dict()}
    if "product" in values:
        value, remarks = tuned.export(values["product"])
        about["export"] = {"product": values["product"], "value": value, "notes": list(remarks)}
    save_model(site.folder.output(step), tuned.fitted, about)
    _repeat(notes)


def do_rank(step: Step, site: Site) -> None:
    values, runner = step.values, site.runner()
    dataset = viewed(site.dataset(values["dataset"]), values)
    shown = Shown(
        support=values["support"],
        least=values["min_support"],
        top=values["top"],
        titles=values["titles"],
        resamples=values["bootstrap"],
        seed=site.job.seed,
    )
    first: list[str] = []
    if is_model(values["model"]) and site.job.step(values["model"]) is None:
        model = model_named(values["model"], values["settings"], seed=site.job.seed)
        keeper = Checkpoints(site.folder.checkpoints(step), **site.job.checkpoints, say=site.say(step))
        with collected_notes() as first:
            params = fit(model, dataset, runner=runner, keeper=keeper)
    else:
        fitted = load_model(site.path(values["model"]))
        params = fitted.params_on(dataset, runner, allow_unseen=values["allow_unseen"])
        model = fitted.model
    with metered(f"{step.name}, parts", len(dataset.plan(values["chunk_entries"]))) as progress:
        rank_in_parts(
            site.folder.output(step),
            site.folder.staging(step),
            model,
            params,
            dataset,
            fmt=safe_format(values["format"], values["safe_csv"]),
            chunk_entries=values["chunk_entries"],
            shown=shown,
            through=_completed(values, dataset, runner, site.job.seed),
            runner=runner,
            progress=progress,
            say=site.say(step),
            before_publishing=lambda notes: site.folder.keep_notes(step, [*first, *notes]),
            record=lambda sha256, size: record(site.folder, step, [_entry(step, site, sha256, size)]),
            reuse=_reuse(step, site) if site.among and _is_by_block(values) else None,
        )
    _repeat(first)


def _completed(values: dict[str, Any], dataset: Dataset, runner: Runner, seed: int) -> Through | None:
    """The completion of ratings that a step asks for, fitted."""
    if "complete" not in values:
        return None
    return fit_completion(completion_named(values["complete"], values["completion"], seed=seed), dataset, runner=runner)


def _is_by_block(values: dict[str, Any]) -> bool:
    """Whether each part of a ranking depends on its own block of data alone, so that a later run may reuse it."""
    return not any(
        values.get(name)
        for name in ("where", "since", "until", "complete", "support", "min_support", "titles", "bootstrap")
    )


def _entry(step: Step, site: Site, sha256: str, size: int) -> dict[str, Any]:
    return {"path": str(site.folder.output(step).relative_to(site.folder.path)), "bytes": size, "sha256": sha256}


def _reuse(step: Step, site: Site) -> Reuse:
    """The parts of the previous run, if the step was a ranking there too."""
    context = {"code": code_key(), "seed": site.job.seed}
    if site.before is None:
        return Reuse(site.folder.recipe_file(step), context)
    then = site.before.folder
    return Reuse(site.folder.recipe_file(step), context, then.output(step), then.recipe_file(step))


def do_evaluate(step: Step, site: Site) -> None:
    values = step.values
    rankings, dataset = site.path(values["rankings"]), viewed(site.dataset(values["dataset"]), values)
    through = _completed(values, dataset, site.runner(), site.job.seed)
    if through is not None:
        metrics = USER_METRICS if values["metrics"] == list(DEFAULT_METRICS) else values["metrics"]
        users = evaluate_users({step.name: read_rankings(rankings)}, dataset, through, metrics, runner=site.runner())
        about = {"complete": values["complete"], "users": len(users.values[step.name])}
        _write(site.folder, step, {"means": users.means[step.name], "protocol": "", **about})
        return
    result = evaluate_rankings(
        read_rankings(rankings), dataset, values["metrics"], protocol=values.get("protocol"), source=str(rankings)
    )
    tell_evaluation(step.name, result, str(dataset.path or ""))
    body = {"means": result.means, "protocol": result.protocol, "queries": len(result.query_ids)}
    _write(site.folder, step, body | {"in_sample": _in_sample(step, site.job)})


def _in_sample(step: Step, job: Job) -> bool:
    """Whether the rankings come from a model that an earlier step fitted on the same labels."""
    ranked = job.step(step.values["rankings"])
    fitted = job.step(ranked.values["model"]) if ranked else None
    if fitted is None or fitted.values["dataset"] != step.values["dataset"]:
        return False
    if fitted.do == "tune":
        return True
    models = variants(fitted.values["model"], fitted.values["settings"], tries=fitted.values.get("tries"))
    return len(models) > 1 or models[0].needs_labels


def do_compare(step: Step, site: Site) -> None:
    values = dict(step.values)
    dataset = site.dataset(values.pop("dataset"))
    models = values.pop("models")
    with (
        metered(f"{step.name}, fits", len(models) * count_folds(values.get("folds"))) as progress,
        collected_notes() as notes,
    ):
        result = compare(
            dataset,
            models,
            **values,
            seed=site.job.seed,
            runner=site.runner(),
            progress=progress,
            kept=Kept(site.folder.staging(step), site.say(step)),
        )
    site.say(step)("compared", seconds=result.pop("seconds"))  # the output must be the same in every run
    result["dataset"]["path"] = step.values["dataset"]
    site.folder.keep_notes(step, notes)
    _write(site.folder, step, result)
    _repeat(notes)


def do_board(step: Step, site: Site) -> None:
    """Write board.html, board.csv and board.json, and for one query the chances of items to beat each other."""
    values, runner = step.values, site.runner()
    dataset, least = viewed(site.dataset(values["dataset"]), values), values["min_battles"]
    model = board_model(values["model"], board_settings(values), site.job.seed)
    with collected_notes() as notes:
        found = boards(model, dataset, query=values.get("query"), min_battles=least, runner=runner)
    refuse_empty(found, least)
    over_time: list[tuple[str, Board]] = []
    if "by" in values:
        if len(found) > 1:
            raise UsageError(f"found {len(found)} queries, and by is for one; choose it by the field query")
        over_time = boards_by(model, dataset, values["by"], query=found[0].query, min_battles=least, runner=runner)
    site.folder.keep_notes(step, notes)
    with staged_directory(site.folder.output(step)) as staging:
        for name in ("board.html", "board.csv", "board.json"):
            body = board_json(found, over_time)
            write_board(str(staging / name), found, over_time, body, step.name, safe_csv=values["safe_csv"])
        if len(found) == 1:
            write_table(str(staging / "chances.csv"), found[0].matrix, safe_csv=values["safe_csv"])
        (staging / MANIFEST).write_bytes(sealed({"files": [entry_of(f, staging) for f in sorted(staging.iterdir())]}))
    _repeat(notes)


def do_scale(step: Step, site: Site) -> None:
    dataset = site.dataset(step.values["dataset"]) if "dataset" in step.values else None
    measurements = scale(step.values, dataset, site.folder.staging(step), site.say(step), seed=site.job.seed)
    _write(site.folder, step, measurements)


STEPS: dict[str, Callable[[Step, Site], None]] = {
    "import": do_import,
    "expand": do_expand,
    "fit": do_fit,
    "tune": do_tune,
    "rank": do_rank,
    "evaluate": do_evaluate,
    "compare": do_compare,
    "board": do_board,
    "scale": do_scale,
}


def metrics_of(job: Job, folder: RunFolder) -> dict[str, Any]:
    """The metrics of evaluate, compare and tune steps, by step."""
    steps = [step for step in job.steps if step.do in MEASURE]
    return {step.name: measured(checked_output(folder, step), step)["means"] for step in steps}


def tidy(folder: RunFolder, step: Step) -> None:
    """Remove the files that only an unfinished step needs."""
    for left in (folder.staging(step), folder.checkpoints(step)):
        shutil.rmtree(left, ignore_errors=True)


def _write(folder: RunFolder, step: Step, body: dict[str, Any]) -> None:
    record_body(folder, step, as_json(body))
    with staged_file(folder.output(step)) as staging:
        staging.write_bytes(as_json(body))


def _repeat(notes: list[str]) -> None:
    for note in notes:
        not_converged(note)
