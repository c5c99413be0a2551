"""Job files: read, override and check them field by field, before anything is written.

A job is a TOML file (or the JSON that a run directory keeps)::

    name = "nightly"
    [steps.data]
    do = "import"
    source = "letor"
    files = ["A1.txt", "A2.txt"]
    [steps.ranked]
    do = "rank"
    model = "rrf"
    dataset = "data"

Paths are relative to where the command is run, and absolute from then on.
"""

from __future__ import annotations

import errno
import json
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distagg.dataset.dataset import Dataset
from distagg.engine.importing import is_pattern, source_files
from distagg.engine.worker_memory import parse_memory
from distagg.errors import DistaggError, UsageError, cut, unknown
from distagg.metrics import parse_metric
from distagg.models import MODELS, is_model
from distagg.pipeline.fields import CHECKPOINTS, MAKES, PLACE, STEPS, TOP
from distagg.pipeline.step_options import REQUIRED, Field, with_shortcuts
from distagg.storage.paths import Place, Store, is_url, place

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    do: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    runs: str
    seed: int
    place: dict[str, Any]
    checkpoints: dict[str, Any]
    steps: tuple[Step, ...]
    keep: int | None = None

    def step(self, name: str) -> Step | None:
        return next((step for step in self.steps if step.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """The complete specification, with defaults."""
        steps = {step.name: {"do": step.do, **step.values} for step in self.steps}
        kept = {} if self.keep is None else {"keep": self.keep}
        return {
            "name": self.name,
            "runs": self.runs,
            **kept,
            "seed": self.seed,
            "place": self.place,
            "checkpoints": self.checkpoints,
            "steps": steps,
        }


def read_job(path: Path, overrides: Sequence[str] = ()) -> Job:
    """Read a job file with ``key=value`` overrides; errors name the field."""
    try:
        text = path.read_text(encoding="utf-8")
        body = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError:
        raise UsageError(f"no job file {path}; 'distagg new KIND' writes one") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f'job file {path}: {error}; expected TOML, such as name = "nightly"') from None
    if not isinstance(body, dict):
        raise UsageError(f"job file {path}: found {_shown(body)}, expected a table")
    for override in overrides:
        _override(body, override)
    try:
        return make_job(body)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _override(body: dict[str, Any], override: str) -> None:
    """Set one dotted key; a value that is not TOML is taken as text."""
    key, equals, value = override.partition("=")
    if not equals or not all(key.split(".")):
        raise UsageError(f"found '{override}', expected key=value, such as steps.ranked.model=borda")
    try:
        read = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        read = value
    *above, last = key.split(".")
    for word in above:
        body = body.setdefault(word, {})
        if not isinstance(body, dict):
            raise UsageError(f"{key}: '{word}' is not a table, so it has no key '{last}'")
    body[last] = read


def make_job(body: dict[str, Any]) -> Job:
    """Check a job and fill in defaults."""
    top = _table(body, TOP, "", ())
    place = _table(top["place"], PLACE, "place.", ())
    if "scheduler" in place and place["workers"]:
        raise UsageError("place.scheduler: give either place.scheduler or place.workers")
    if "memory" in place and not place["workers"]:
        raise UsageError("place.memory: is that of local workers; give place.workers, too, or omit it")
    checkpoints = _table(top["checkpoints"], CHECKPOINTS, "checkpoints.", ())
    if not top["steps"]:
        raise UsageError("steps: found none, expected at least one, such as [steps.data]")
    steps: list[Step] = []
    for name, values in top["steps"].items():
        steps.append(_step(name, values, steps, list(top["steps"]), top["seed"]))
    if is_url(top["runs"]):
        raise UsageError(f"runs: found the URL {top['runs']}, expected a local folder: run directories need file locks")
    runs = str(Path(top["runs"]).absolute())
    return Job(top["name"], runs, top["seed"], place, checkpoints, tuple(steps), top.get("keep"))


def _step(name: str, values: Any, before: Sequence[Step], names: list[str], seed: int) -> Step:
    from distagg.pipeline.fields import check_step

    where = f"steps.{name}"
    if not _NAME.fullmatch(name):
        raise UsageError(f"{where}: found '{name}', expected a name of letters, digits, dots, dashes")
    if not isinstance(values, dict):
        raise UsageError(f"{where}: found {_shown(values)}, expected a table")
    do = values.get("do")
    if do is None:
        raise UsageError(f"{where}.do: is missing, expected one of {', '.join(STEPS)}")
    if not isinstance(do, str):
        raise UsageError(f"{where}.do: found {_shown(do)}, expected one of {', '.join(STEPS)}")
    if do not in STEPS:
        raise _named(f"{where}.do", unknown("step", do, STEPS))
    rest = {key: value for key, value in values.items() if key != "do"}
    read = _table(rest, STEPS[do], f"{where}.", before, names)
    if "depth" in STEPS[do]:  # it and weights are short for settings
        shortcuts = {key: read.pop(key, None) for key in ("depth", "weights")}
        try:
            read["settings"] = with_shortcuts(read["settings"], **shortcuts)
        except UsageError as error:
            raise _named(where, error) from error
    step = Step(name, do, read)
    check_step(step, where, before, seed)
    return step


def _table(
    found: Any, fields: dict[str, Field], where: str, before: Sequence[Step], names: Sequence[str] = ()
) -> dict[str, Any]:
    """Check the values of a table and fill in defaults."""
    if not isinstance(found, dict):
        raise UsageError(f"{where.rstrip('.')}: found {_shown(found)}, expected a table")
    for key in found:
        if key not in fields:
            raise unknown(f"key '{where}{key}', that is", key, sorted(fields))
    values = {}
    for key, field in fields.items():
        if key not in found:
            if field.default is REQUIRED:
                raise UsageError(f"{where}{key}: is missing; it is {field.help}")
            if field.default is not None:
                values[key] = field.default
            continue
        try:
            values[key] = _read(field, found[key], before, names)
        except DistaggError as error:
            raise _named(f"{where}{key}", error) from error
    return values


def _named(where: str, error: DistaggError) -> UsageError:
    return UsageError(f"{where}: {error}")


def _read(field: Field, value: Any, before: Sequence[Step], names: Sequence[str]) -> Any:
    if field.kind in ("whole", "number"):
        return _number(field, value)
    if field.kind == "flag":
        return _of(value, bool, "true or false")
    if field.kind in ("table", "settings", "columns"):
        return _of(value, dict, "a table")
    if field.kind == "interval":
        return _interval(value)
    if field.kind == "folds":
        return _folds(value)
    if field.kind in ("paths", "metrics", "models", "counts"):
        words = _of(value, list, f"a list, such as [{_EXAMPLES[field.kind]}]")
        if not words:
            raise UsageError("found an empty list, expected at least one")
        read: list[Any] = [one for word in words for one in _word(field.kind, word)]
        twice = next((word for word in read if read.count(word) > 1), None)
        if twice is not None:
            raise UsageError(f"found '{twice}' twice")
        return read
    text = _text(value)
    if field.kind == "choice":
        if text not in field.choices:
            raise unknown("value", text, field.choices)
        return text
    if field.kind in ("dataset", "ranker", "rankings"):
        return _reference(field.kind, text, before, names)
    return _WORDS[field.kind](text)


def _word(kind: str, value: Any) -> list[Any]:
    """One value of a list field; a pattern stands for all files that match."""
    if kind == "counts":
        return [_number(Field("whole", "", least=1), value)]
    if kind == "paths" and is_url(_text(value)):
        return [_path(str(file)) for file in source_files(_path(value))]
    if kind == "paths" and is_pattern(path := Path(_text(value)).expanduser()):
        return [str(file.absolute()) for file in source_files(path) if isinstance(file, Path)]
    return [_WORDS[kind[:-1]](_text(value))]


def _number(field: Field, value: Any) -> float:
    kinds = (int,) if field.kind == "whole" else (int, float)
    what = "a whole number" if field.kind == "whole" else "a number"
    if isinstance(value, bool) or not isinstance(value, kinds) or not abs(value) < 2**63:  # nor NaN
        raise UsageError(f"found {_shown(value)}, expected {what}")
    if field.least is not None and value < field.least:
        raise UsageError(f"found {value}, expected {what} of at least {field.least:g}")
    return value


def _folds(value: Any) -> str:
    if value == "letor5" or (str(value).isdigit() and not isinstance(value, bool) and int(value) >= 3):
        return str(value)
    raise UsageError(f"found {_shown(value)}, expected letor5 or a whole number of at least 3")


def _interval(value: Any) -> list[float]:
    """Two numbers, as text ("1,5") or as a list."""
    words = value.split(",") if isinstance(value, str) else value
    try:
        low, high = (float(word) for word in words)
    except (TypeError, ValueError):
        raise UsageError(f"found {_shown(value)}, expected two numbers such as [0.5, 5]") from None
    return [low, high]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"found {_shown(value)}, expected text")
    return value


def _of(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise UsageError(f"found {_shown(value)}, expected {what}")
    return value


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise UsageError(f"found '{text}', expected letters, digits, dots, dashes")
    return text


def _path(text: str) -> str:
    if is_url(text):
        where = place(text)
        if isinstance(where, Store) and where.secret:
            raise UsageError(f"found {where}, a URL with a query, which a run would store; expected one without")
        return text
    path = Path(text).expanduser()
    if not _exists(path):
        raise UsageError(
            f"found '{cut(text, 200)}', but there is no such file; paths are relative to the folder where the command "
            "runs"
        )
    return str(path.absolute())


def _exists(path: Place) -> bool:
    """Whether there is something; nothing has a name that is too long."""
    try:
        return path.exists()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise


def _metric(text: str) -> str:
    return str(parse_metric(text))


def _model(text: str) -> str:
    if not is_model(text):
        raise unknown("model", text, MODELS)
    return text


def _size(text: str) -> str:
    parse_memory(text)
    return text


_WORDS: dict[str, Callable[[str], str]] = {
    "text": lambda text: text,
    "name": _name,
    "path": _path,
    "metric": _metric,
    "model": _model,
    "size": _size,
}
_EXAMPLES = {"paths": '"A1.txt"', "metrics": '"ndcg@5"', "models": '"rrf"', "counts": "1, 2, 4"}


def _reference(kind: str, text: str, before: Sequence[Step], names: Sequence[str]) -> str:
    """Check a reference: an earlier step with the wanted output, a path, or a model's name."""
    wanted = "model" if kind == "ranker" else kind
    step = next((step for step in before if step.name == text), None)
    if step is not None:
        if MAKES.get(step.do) != wanted:
            able = ", ".join(do for do, makes in MAKES.items() if makes == wanted)
            raise UsageError(f"step '{text}' is {step.do}, expected a step whose output is a {wanted}: {able}")
        return text
    if text in names:
        raise UsageError(f"step '{text}' does not come before this one; move it up")
    if kind == "ranker" and is_model(text):
        return text
    if not _exists(place(text) if is_url(text) else Path(text).expanduser()):
        makers = [step.name for step in before if MAKES.get(step.do) == wanted]
        known = [*makers, *(MODELS if kind == "ranker" else ())]
        raise unknown(f"step or path (expected a {wanted})", text, known)
    path = _path(text)
    if kind == "dataset":
        Dataset.open(path)
    elif kind == "ranker":
        from distagg.engine.saved import load_model

        load_model(path)
    return path


def _shown(value: Any) -> str:
    return repr(value) if not isinstance(value, dict) else "a table"
