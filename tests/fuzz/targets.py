"""What is fuzzed: every reader, conditions, job files, manifests, and the small languages of options.

A target reads an input as the commands do. Only distagg's own errors may come out of it; where two parsers can read the
same text, both must accept it and agree. ``Target.run`` returns the kind of outcome, by which the campaign tells inputs
that do something new from those that repeat what others did.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fuzz.mutations import mutated, mutated_gzip, mutated_json, mutated_parquet

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.frames import hold_source
from distagg.dataset.select import matches
from distagg.engine.rank_incremental import block_digests
from distagg.engine.read_rankings import read_rankings
from distagg.engine.saved import Fitted, load_model, save_model
from distagg.errors import DistaggError, InputError
from distagg.models import model_named
from distagg.pipeline.spec import read_job
from distagg.pipeline.status import status
from distagg.sources import SOURCES, delimited, letor
from distagg.sources.cells import csv_rows
from distagg.sources.detect import kind_of_file
from distagg.sources.ratings import read_about, text_layout
from distagg.sources.synthetic import SyntheticSource
from distagg.sources.tables import LongTable
from distagg.sources.trec import QRELS_LINES, TrecSource, read_qrels
from distagg.storage.atomic import digest
from distagg.storage.sealed import sealed

HELD_BYTES = 32 << 20
CORPUS = Path(__file__).parent / "corpus"
Mutate = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
_DETAIL = re.compile(r"'[^']*'|\"[^\"]*\"|[0-9]+")


class DisagreementError(AssertionError):
    """Two parsers of the same text disagree."""


@dataclass(frozen=True)
class Target:
    """A kind of input, the name of its file, and what reads it."""

    name: str
    file: str
    read: Callable[[Path], Any]
    mutate: Mutate = mutated
    share: int = 1  # of all inputs; more where reading one is quick

    def seeds(self) -> list[bytes]:
        """The inputs to start from, and those that once did harm."""
        return [file.read_bytes() for file in sorted((CORPUS / self.name).iterdir())]

    def run(self, body: bytes, folder: Path) -> str:
        """Read an input; returns the kind of outcome. Raises whatever is not distagg's own error."""
        path = folder / self.file
        path.write_bytes(body)
        try:
            return f"read {self.read(path)}"
        except DistaggError as error:
            str(error)
            return _DETAIL.sub("", str(error).replace(str(folder), ""))[:120]


def agree(fast: Any, exact: Callable[[], Any], equal: Callable[[Any, Any], bool]) -> None:
    """What the fast parser accepts the exact one must accept too, as the same rows."""
    if fast is None:
        return
    try:
        slow = exact()
    except InputError as error:
        raise DisagreementError(f"the fast parser accepts what the exact one refuses: {error}") from error
    if not equal(fast, slow):
        raise DisagreementError(f"fast: {_shown(fast)}, exact: {_shown(slow)}")


def _shown(rows: Any) -> str:
    return str(rows.to_pylist() if isinstance(rows, pa.Table) else rows)[:400]


def _same_table(one: pa.Table, other: pa.Table) -> bool:
    return one.cast(_plain(one)).equals(other.cast(_plain(other)))


def _plain(table: pa.Table) -> pa.Schema:
    """The schema without dictionaries."""
    types = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in table.schema]
    return pa.schema(list(zip(table.column_names, types, strict=True)))


def _delimited(file: Path, layout: delimited.Layout) -> None:
    """Compare the parsers of delimited lines on every block."""
    for lines in delimited.read_lines(file, layout.header):
        fast = delimited._parse_fast(lines.text, layout)
        agree(fast, lambda lines=lines: delimited._parse_exact(lines, layout), _same_table)  # type: ignore[misc]


def _held(kind: str, file: Path, **options: Any) -> str:
    """Read a file into a dataset in memory, as ``distagg rank`` does."""
    if file.suffix == ".parquet":
        _in_pieces(SOURCES[kind]([file], **options), file)
    source = SOURCES[kind]([file], **options)
    source.partition = "query"
    manifest = hold_source(source, memory_bytes=HELD_BYTES).manifest
    return (
        f"{min(manifest.queries, 3)} {min(manifest.lists, 3)} {min(manifest.entries, 5)} {min(len(manifest.labels), 2)}"
    )


def _in_pieces(source: Any, file: Path) -> None:
    """Read spans of a file, as workers do."""
    with suppress(DistaggError):
        for piece in source.split(1 + file.stat().st_size // 2):
            for _ in piece.tables():
                pass


def read_letor(file: Path) -> str:
    count = letor.LineCount(file, None)
    for first, block in letor._blocks(file, None):
        block += b"" if block.endswith(b"\n") else b"\n"
        fast = letor._parse_block(block, first, count)
        agree(fast, lambda: letor._parse_lines(block, first, count), _same_lines)  # noqa: B023
    return _held("letor", file)


def _same_lines(one: letor.Lines, other: letor.Lines) -> bool:
    words = ("query", "item", "label", "rank")
    return (
        all(getattr(one, name).to_pylist() == getattr(other, name).to_pylist() for name in words)
        and one.expert.to_pylist() == other.expert.to_pylist()
        and bool(np.array_equal(one.line, other.line) and np.array_equal(one.row, other.row))
    )


def read_trec(file: Path) -> str:
    by = TrecSource([file], expert="tag", by="rank")
    _delimited(file, by._layout)
    _delimited(file, TrecSource([file])._layout)
    return _held("trec", file)


def read_judgements(file: Path) -> str:
    if file.suffix == ".txt":
        _delimited(file, QRELS_LINES)
    return str(min(len(read_qrels([file])), 3))


def read_ratings(file: Path) -> str:
    if file.suffix != ".parquet":
        _delimited(file, text_layout(file))
    return _held("ratings", file)


def _cells_agree(table: LongTable) -> None:
    """Compare Arrow's cells of a CSV file with those of Python's csv module."""
    fast: list[list[str]] = []
    for batch in table._raw():
        fast += [list(row.values()) for row in batch.select(table._stored).to_pylist()]
    rows = [cells for _, cells in csv_rows(table.file, table.format)]
    places = [rows[0].index(name) for name in table._stored]
    slow = [[cells[at] if at < len(cells) else None for at in places] for cells in rows[1:]]
    if fast != slow:
        raise DisagreementError(f"Arrow: {fast!s:.300}, csv: {slow!s:.300}")


def _json_agree(table: LongTable) -> None:
    """Compare Arrow's values of JSON lines with those of Python's json module, as columns convert them."""
    fast = list(table.batches())
    exact = LongTable._jsonl
    LongTable._jsonl = _object_by_object  # type: ignore[method-assign]
    try:
        slow = list(table.batches())
    except InputError as error:
        raise DisagreementError(f"Arrow accepts what json refuses: {error}") from error
    finally:
        LongTable._jsonl = exact  # type: ignore[method-assign]
    one, other = pa.concat_tables(fast), pa.concat_tables(slow)
    if not one.equals(other):
        raise DisagreementError(f"Arrow: {_shown(one)}, json: {_shown(other)}")


def _object_by_object(self: LongTable) -> Iterator[pa.Table]:
    yield self._json_rows(self.file.read_bytes(), 1)


def _table(kind: str) -> Callable[[Path], str]:
    def read(file: Path) -> str:
        tables = SOURCES[kind]([file])._tables
        for table in tables.values() if isinstance(tables, dict) else tables:
            if table.format in ("csv", "tsv"):
                _cells_agree(table)
            if table.format == "jsonl":
                _json_agree(table)
        return _held(kind, file)

    return read


def read_preflib(file: Path) -> str:
    return _held("rankings", file)


def read_people(file: Path) -> str:
    table = read_about(file)
    return f"{min(len(table), 3)} {table.num_columns} {sorted({str(t) for t in table.schema.types})}"


def tell_kind(file: Path) -> str:
    return kind_of_file(file)


def ranked(file: Path) -> str:
    return str(read_rankings(file).schema.types)


_PEOPLE = pa.table(
    {
        "age": [20, None, 61],
        "gender": ["F", "M", None],
        "weight": [1.5, float("nan"), 2.0],
        "joined": pa.array([1, 2, None], pa.timestamp("s")),
        "active": [True, False, None],
    }
)


def ask_where(file: Path) -> str:
    return str(matches(file.read_bytes().decode("utf-8", "replace"), _PEOPLE).tolist())


def read_names(file: Path) -> str:
    """The small languages of options: metrics, spans of time, settings of models, covariates, hosts."""
    from distagg.cli.options import columns_of
    from distagg.covariates import terms_of
    from distagg.engine.certificates import alternative_name
    from distagg.metrics import parse_metric
    from distagg.storage.paths import place
    from distagg.times import span_of, time_of

    kind, _, text = file.read_bytes().decode("utf-8", "replace").partition(" ")
    readers: dict[str, Callable[[str], Any]] = {
        "metric": parse_metric,
        "span": lambda word: span_of(word, "--half-life"),
        "time": lambda word: time_of(word, "--since"),
        "covariates": terms_of,
        "weights": lambda word: model_named("rrf", {"weights": word}),
        "host": alternative_name,
        "place": place,
        "columns": lambda word: columns_of(None, None, word),  # type: ignore[arg-type]
        "number": lambda word: model_named("rrf", {"c": word}),
    }
    return kind + type(readers.get(kind, str)(text)).__name__


def read_jobs(file: Path) -> str:
    return str([step.do for step in read_job(file).steps])


@cache
def _made(folder: Path) -> Path:
    """A dataset, a model, rankings and a run, whose manifests are replaced by inputs."""
    from distagg.engine.rank import rank_to

    made = folder / "made"
    write_dataset(SyntheticSource(queries=3, items=5, shape="mq2008", seed=1), made / "dataset")
    dataset = Dataset.open(made / "dataset")
    model = model_named("bestinput", {})
    save_model(made / "model", Fitted(model, {"expert_score": np.arange(25.0)}, dataset.experts))
    rank_to(made / "rankings", model_named("rrf", {}), {}, dataset)
    (made / "run").mkdir()
    (made / "run" / "job.json").write_text('{"name": "x", "steps": {"ranked": {"do": "rank"}}}')
    return made


_MODELS = [model_named(name, {}) for name in ("rrf", "condorcet")]  # kernels that index by what was read


def _manifest(what: str, name: str, read: Callable[[Path], Any]) -> Callable[[Path], str]:
    def reader(file: Path) -> str:
        folder = _made(file.parent) / what
        shutil.copyfile(file, folder / name)
        return str(read(folder))[:60]

    return reader


def _part(what: str, name: str, read: Callable[[Path], Any]) -> Callable[[Path], str]:
    """A file of a dataset or model is replaced, and the manifest says that it is the right one."""

    def reader(file: Path) -> str:
        folder = _made(file.parent) / what
        shutil.copyfile(file, folder / name)
        body = json.loads((folder / "manifest.json").read_text())
        for entry in body["files"]:
            if entry["path"] == name:
                entry |= {"bytes": file.stat().st_size, "sha256": digest(file), "footer": ""}
        (folder / "manifest.json").write_bytes(sealed(body))
        return str(read(folder))[:60]

    return reader


def _open_and_load(folder: Path) -> str:
    dataset = Dataset.open(folder)
    dataset.info()
    with suppress(DistaggError):  # as nightly runs do, to see what has changed
        block_digests(
            (str(folder), dataset.manifest.kind, [b for ref in dataset.plan()[:2] for b in ref.blocks], False)
        )
    chunks = [ref.load() for ref in dataset.plan()[:2]]
    return str([(chunk.n_items, [len(model.score(chunk, {})) for model in _MODELS]) for chunk in chunks])


def _load(folder: Path) -> str:
    return str(load_model(folder).model.name)


def _rows_of(folder: Path) -> str:
    return str(len(read_rankings(folder)))


def _status(folder: Path) -> str:
    return str([sorted(step) for step in status(folder)["steps"]])


TARGETS = {
    target.name: target
    for target in (
        Target("letor", "x.txt", read_letor),
        Target("trec", "x.run", read_trec),
        Target("trec-gzip", "x.run.gz", read_trec, mutated_gzip),
        Target("qrels", "x.txt", read_judgements),
        Target("qrels-tsv", "x.tsv", read_judgements, share=3),
        Target("ratings", "u.data", read_ratings),
        Target("ratings-parquet", "x.parquet", read_ratings, mutated_parquet),
        Target("rankings-csv", "x.csv", _table("rankings")),
        Target("rankings-tsv", "x.tsv", _table("rankings")),
        Target("rankings-jsonl", "x.jsonl", _table("rankings"), share=3),
        Target("rankings-json", "x.json", _table("rankings"), mutated_json),
        Target("rankings-parquet", "x.parquet", _table("rankings"), mutated_parquet),
        Target("preflib", "x.toc", read_preflib),
        Target("pairs-csv", "x.csv", _table("pairs")),
        Target("pairs-jsonl", "x.jsonl", _table("pairs"), share=3),
        Target("pairs-parquet", "x.parquet", _table("pairs"), mutated_parquet),
        Target("about", "u.user", read_people, share=3),
        Target("about-csv", "x.csv", read_people, share=3),
        Target("about-parquet", "x.parquet", read_people, mutated_parquet),
        Target("kind", "x.dat", tell_kind, share=6),
        Target("kind-csv", "x.csv", tell_kind, share=6),
        Target("ranked-csv", "x.csv", ranked, share=6),
        Target("ranked-parquet", "x.parquet", ranked, mutated_parquet),
        Target("where", "x", ask_where, share=6),
        Target("names", "x", read_names, share=6),
        Target("job-toml", "x.toml", read_jobs, share=6),
        Target("job-json", "x.json", read_jobs, mutated_json, share=6),
        Target("manifest-dataset", "x.json", _manifest("dataset", "manifest.json", _open_and_load), mutated_json),
        Target("manifest-model", "x.json", _manifest("model", "manifest.json", _load), mutated_json, share=3),
        Target("manifest-rankings", "x.json", _manifest("rankings", "_manifest.json", _rows_of), mutated_json),
        Target("lists-dataset", "x.parquet", _part("dataset", "lists-00000.parquet", _open_and_load), mutated_parquet),
        Target("params-model", "x.parquet", _part("model", "params.parquet", _load), mutated_parquet),
        Target("run-job", "x.json", _manifest("run", "job.json", _status), mutated_json, share=6),
        Target("run-events", "x.jsonl", _manifest("run", "events.jsonl", _status), share=6),
    )
}
