"""Folds: the division of queries into training, validation and test."""

from __future__ import annotations

from dataclasses import dataclass, replace

from distagg.dataset.chunk import Chunk
from distagg.dataset.chunk_ref import Elsewhere
from distagg.dataset.dataset import Dataset
from distagg.errors import UsageError


@dataclass(frozen=True, slots=True)
class Fold:
    name: str
    train: Dataset
    valid: Dataset
    test: Dataset


def count_folds(folds: str | None) -> int:
    """The number of folds, for the progress bar; 1 without folds, or where ``make_folds`` will refuse them."""
    return 5 if folds == "letor5" else int(folds) if (folds or "").isdigit() else 1  # type: ignore[arg-type]


def make_folds(dataset: Dataset, folds: str) -> list[Fold]:
    """``letor5`` (the five parts in name order) or a number K >= 3 (queries dealt out in turn).

    LETOR's fold k tests on part (k + 3) mod 5 + 1, validates on the part before it, trains on the other three.
    """
    if folds == "letor5":
        parts = sorted(dataset.manifest.parts)
        if len(parts) != 5:
            raise UsageError(
                f"--folds letor5 needs 5 parts, but the dataset has {len(parts)}: {', '.join(parts) or '-'}"
            )
        result = []
        for k in range(1, 6):
            test, valid = (k + 3) % 5, (k + 2) % 5
            train = [part for n, part in enumerate(parts) if n not in (test, valid)]
            selected = (dataset.select(parts=p) for p in (train, [parts[valid]], [parts[test]]))
            result.append(Fold(str(k), *selected))
        return result
    if not folds.isdigit() or int(folds) < 3:
        raise UsageError(f"--folds: found '{folds}', expected letor5 or a whole number of at least 3")
    count = int(folds)
    if count > dataset.manifest.queries:
        raise UsageError(f"--folds {count}: the dataset has only {dataset.manifest.queries} queries; take fewer folds")
    result = []
    for k in range(count):
        valid = (k + 1) % count
        rest = set(range(count)) - {k, valid}
        result.append(Fold(str(k + 1), *(dataset.select(fold=(count, r)) for r in (rest, {valid}, {k}))))
    return result


def hold_outs(train: Dataset, valid: Dataset | None) -> list[tuple[Dataset, Dataset | None]]:
    """Ways to divide the same queries into training and validation: the given one, then each training part held out.

    A part is a source part or a residue of the query's position, as in ``make_folds``. If the two datasets do not
    consist of such parts of one dataset, the given division is the only one.
    """
    given: list[tuple[Dataset, Dataset | None]] = [(train, valid)]
    if valid is None or not _same(train, valid):
        return given
    a, b = train.where, valid.where
    whole = replace(a, parts=b.parts, residues=b.residues) == b  # they differ only in these
    if whole and a.residues == b.residues and a.parts and b.parts and not a.parts & b.parts:
        units = a.parts | b.parts
        wheres = [(replace(a, parts=units - {part}), replace(b, parts=frozenset({part}))) for part in sorted(a.parts)]
    elif whole and a.parts == b.parts and a.residues and b.residues and not a.residues & b.residues:
        slots = a.residues | b.residues
        wheres = [(replace(a, residues=slots - {n}), replace(b, residues=frozenset({n}))) for n in sorted(a.residues)]
    else:
        return given
    return given + [(replace(train, where=rest), replace(valid, where=held_out)) for rest, held_out in wheres]


def together(first: Dataset, second: Dataset) -> Dataset:
    """The queries of two parts of one dataset, which ``hold_outs`` can divide."""
    a, b = first.where, second.where
    parts = a.parts | b.parts if a.parts is not None and b.parts is not None else None
    return replace(first, where=replace(a, parts=parts, residues=a.residues | b.residues))


def in_turn(dataset: Dataset, count: int = 5) -> list[tuple[Dataset, Dataset]]:
    """The queries of a dataset divided into ``count`` parts, each held out once: (the others, the part)."""
    where = dataset.where
    modulus = where.modulus if where.residues else 1
    slots = where.residues or frozenset({0})
    parts = [{slot + modulus * number for slot in slots} for number in range(count)]
    whole = set().union(*parts)
    return [tuple(dataset.select(fold=(modulus * count, some)) for some in (whole - part, part)) for part in parts]  # type: ignore[misc]


def _same(first: Dataset, second: Dataset) -> bool:
    """Whether both datasets have the same rows, whatever each selects."""
    if (first.path, first.manifest, first.experts, first.pieces) != (
        second.path,
        second.manifest,
        second.experts,
        second.pieces,
    ):
        return False
    return all(a is b or _same_chunk(a, b) for a, b in zip(first.held, second.held, strict=True))


def _same_chunk(a: Chunk | Elsewhere, b: Chunk | Elsewhere) -> bool:
    if not isinstance(a, Chunk) or not isinstance(b, Chunk):
        return a == b
    return (a.labels.tobytes(), a.entry_item.tobytes()) == (b.labels.tobytes(), b.entry_item.tobytes())
