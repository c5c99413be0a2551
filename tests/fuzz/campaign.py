"""Fuzz all targets, or some, within limits of memory and time; print counts and whatever was found.

    make fuzz                                                       a million inputs
    PYTHONPATH=tests python -m fuzz.campaign letor where --inputs 10000 --seed 7 --found out/found

Inputs are mutations of those in ``corpus/``. An input with a new kind of outcome (another error, another shape of
result) joins them, so that later mutations start from it. Every target runs in a process of its own, with a limit on
its memory; an input may take ``CPU_SECONDS`` of the processor. A crash of that process (a fault in native code) or its
silence is found too, because its last input is on disk. Exit 1 if anything was found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.targets import TARGETS, Target

CPU_SECONDS = 10.0  # of one input
SILENT_SECONDS = 300.0  # the parent kills a process that reads one input for so long, by the clock
MEMORY_BYTES = 1 << 30  # beyond what the process has when it begins
NEW_INPUTS = 400  # at most, beside the corpus
SAME = 3  # findings of one kind that are kept


class TooLongError(BaseException):
    """An input took too much of the processor; not an Exception, so that no reader swallows it."""


@dataclass
class Found:
    """What the inputs of a target did."""

    target: str
    inputs: int = 0
    outcomes: int = 0
    findings: list[tuple[str, bytes]] = field(default_factory=list)


def inputs_of(target: Target, count: int, seed: int) -> Iterator[bytes]:
    """The corpus, then mutations; ``send`` tells whether the last input did something new."""
    draw = random.Random(f"{seed} {target.name}")
    seeds = target.seeds()
    pool = list(seeds)
    for body in seeds[:count]:
        yield body
    for _ in range(count - len(seeds)):
        body = target.mutate(draw, draw.choice(pool if draw.random() < 0.7 else seeds), pool)
        new = yield body
        if new:
            pool.append(body)
            if len(pool) > len(seeds) + NEW_INPUTS:
                del pool[draw.randrange(len(seeds), len(pool))]


def fuzz(target: Target, count: int, seed: int, folder: Path, *, tell: object = None) -> Found:
    """Run inputs in this process; ``tell(number)`` is called before each."""
    found, outcomes, kinds = Found(target.name), set(), {}  # type: ignore[var-annotated]
    feed = inputs_of(target, count, seed)
    body = next(feed, None)
    with contextlib.suppress(StopIteration), quietly():
        while body is not None:
            found.inputs += 1
            if tell is not None:
                tell(found.inputs)  # type: ignore[operator]
            outcome, finding = _one(target, body, folder)
            if finding:
                kind = finding.splitlines()[-1][:60] + finding.splitlines()[0]
                kinds[kind] = kinds.get(kind, 0) + 1
                if kinds[kind] <= SAME:
                    found.findings.append((finding, body))
            new = outcome not in outcomes
            outcomes.add(outcome)
            body = feed.send(new)
    found.outcomes = len(outcomes)
    return found


@contextmanager
def quietly() -> Iterator[None]:
    """Without the log, and without warnings of numpy and others about odd numbers."""
    log = logging.getLogger("distagg")
    was, log.disabled = log.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.disabled = was


def _one(target: Target, body: bytes, folder: Path) -> tuple[str, str]:
    """The kind of outcome, and the finding if it must not be."""
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        return target.run(body, folder), ""
    except TooLongError:
        return "too long", f"more than {CPU_SECONDS:.0f} s of the processor\ntoo long"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        last = [frame for frame in traceback.extract_tb(error.__traceback__) if "distagg" in frame.filename]
        where = f"{Path(last[-1].filename).name}:{last[-1].lineno}" if last else "?"
        lines = "".join(traceback.format_exception(error)).strip()
        return f"{type(error).__name__} {where}", f"{type(error).__name__} at {where}\n{lines[-1500:]}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _too_long(number: int, frame: object) -> None:
    raise TooLongError


def in_a_process(target: Target, count: int, seed: int, folder: Path) -> Found:
    """As ``fuzz``, in a process of its own with its own limits; what ends or silences it is a finding."""
    shared = mmap.mmap(-1, 8)
    result = folder / "result.json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about threads: the child uses none of the parent's
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGVTALRM, _too_long)
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + MEMORY_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            done = fuzz(target, count, seed, folder, tell=lambda n: struct.pack_into("q", shared, 0, n))
            rows = [[text, body.hex()] for text, body in done.findings]
            result.write_text(json.dumps([done.inputs, done.outcomes, rows]))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    ended, why = _watch(child, shared)
    if result.exists():
        inputs, outcomes, rows = json.loads(result.read_text())
        return Found(target.name, inputs, outcomes, [(text, bytes.fromhex(body)) for text, body in rows])
    last = (folder / target.file).read_bytes() if (folder / target.file).exists() else b""
    inputs = struct.unpack_from("q", shared, 0)[0]
    return Found(target.name, inputs, 0, [(f"{why or f'the process ended with status {ended}'}\ncrash", last)])


def _watch(child: int, shared: mmap.mmap) -> tuple[int, str]:
    """Wait for a process; kill it if it reads the same input for too long."""
    number, since, why = -1, time.monotonic(), ""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status, why
        now = struct.unpack_from("q", shared, 0)[0]
        if now != number:
            number, since = now, time.monotonic()
        elif time.monotonic() - since > SILENT_SECONDS:
            why = f"silent for {SILENT_SECONDS:.0f} s at input {number}"
            os.kill(child, signal.SIGKILL)
        time.sleep(0.05)


def campaign(names: Sequence[str], inputs: int, seed: int, keep: Path | None) -> list[Found]:
    """Share the inputs among the targets, and run one after the other."""
    every = []
    shared = Path("/dev/shm")
    shares = sum(TARGETS[name].share for name in names)
    for name in names:
        folder = Path(tempfile.mkdtemp(prefix="distagg-fuzz-", dir=shared if shared.is_dir() else None))
        try:
            began = os.times()
            found = in_a_process(TARGETS[name], -(-inputs * TARGETS[name].share // shares), seed, folder)
            spent = sum(os.times()[2:4]) - sum(began[2:4])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        rate = found.inputs / max(spent, 0.01)
        print(f"{name:18} {found.inputs:9,} inputs {found.outcomes:5} outcomes {rate:7,.0f} a CPU second "
              f"{len(found.findings):3} findings", flush=True)  # fmt: skip
        for number, (text, body) in enumerate(found.findings):
            print(f"  {text}\n  {body[:200]!r}", file=sys.stderr, flush=True)
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{name}-{seed}-{number}").write_bytes(body)
                (keep / f"{name}-{seed}-{number}.txt").write_text(text, errors="backslashreplace")
        every.append(found)
    return every


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="(default: all)")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="in all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--found", type=Path, help="a folder for the inputs that did harm")
    arguments = parser.parse_args()
    found = campaign(arguments.targets or list(TARGETS), arguments.inputs, arguments.seed, arguments.found)
    harm = sum(len(each.findings) for each in found)
    print(f"{sum(each.inputs for each in found):,} inputs, {harm} findings")
    return 1 if harm else 0


if __name__ == "__main__":
    sys.exit(main())
