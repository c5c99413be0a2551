"""Models by name: imported when asked for, built in or from other packages."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from distagg.errors import UsageError
from distagg.models import MODELS, Model
from distagg.models.registry import ALIASES, COMPLETIONS, ENTRY_POINTS, Registry, family_of

TOY = '''
from dataclasses import dataclass
from typing import ClassVar
from distagg.models.base import Tally, param, sum_entries

@dataclass(frozen=True, kw_only=True)
class Toy(Tally):
    """Sum of 1 / rank ** power."""

    name: ClassVar[str] = "toy"
    summary: ClassVar[str] = "sum of powers of ranks"
    paper: ClassVar[str] = "none"
    power: float = param(1.0, "the power", above=0.0)

    def map(self, chunk, params):
        return {"sum": sum_entries(chunk, chunk.entry_rank ** -self.power)}

    def settle(self, chunk, tally, params):
        return tally["sum"]
'''


def install(folder: Path, points: str, package: str = "toy-models", source: str = TOY) -> Path:
    """A package with one module, as pip leaves it: the module beside its metadata."""
    (folder / "toymodels.py").write_text(source, encoding="utf-8")
    metadata = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{points}\n", encoding="utf-8")
    return folder


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that Python imports from."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def registry() -> Registry[Model]:
    return Registry(MODELS.built_in, ENTRY_POINTS)


def run(script: str, folder: Path) -> str:
    paths = os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_names_are_those_of_the_classes() -> None:
    assert [model.name for model in MODELS.values()] == list(MODELS)
    assert [completion.name for completion in COMPLETIONS.values()] == list(COMPLETIONS)
    assert set(ALIASES.values()) <= set(MODELS)


def test_every_built_in_model_is_listed_in_its_family() -> None:
    others = family_of("a model of another package")
    assert [name for name in MODELS.built_in if family_of(name) == others] == []


def test_names_and_one_model_import_no_other() -> None:
    script = (
        "import sys; from distagg.models import MODELS, is_model; assert is_model('crf') and len(list(MODELS)) > 30\n"
        "MODELS['rrf']; print(*sorted(name for name in sys.modules if name.startswith('distagg.models.')))"
    )
    families = {name.split(".")[2] for name in run(script, Path.cwd()).split()}
    shared = {"base", "compared", "lists", "outcome", "pairs", "registry", "rounds", "weights"}
    assert families == shared | {"completion", "positional"}


def test_a_package_adds_a_model(tmp_path: Path) -> None:
    """Everything that takes a model's name takes it."""
    install(tmp_path, "toy = toymodels:Toy")
    script = """
import distagg, pyarrow as pa, pyarrow.csv as csv
from distagg.cli.main import main

lists = pa.table({"query": ["q"] * 3, "expert": ["a", "a", "b"], "item": ["x", "y", "y"], "rank": [1, 2, 1]})
print(distagg.rank("toy", distagg.Dataset.from_arrow(lists), power=2)["score"].to_pylist())
csv.write_csv(lists, "lists.csv")
assert main(["import", "rankings", "lists.csv", "-o", "data"]) == 0
assert main(["rank", "toy", "data", "-o", "ranked"]) == 0
assert main(["models", "toy"]) == 0
assert list(distagg.MODELS)[-1] == "toy"
"""
    said = run(script, tmp_path)
    assert "[1.25, 1.0]" in said
    assert "power = 1.0" in said


def test_a_package_that_cannot_be_imported_is_named(path: Path) -> None:
    broken = registry()
    install(path, "toy = toymodels:Toy", source="import no_such_module")
    assert "toy" in broken
    with pytest.raises(UsageError, match=r"'toy' of package 'toy-models' .*no_such_module.*uninstall"):
        broken["toy"]


def test_a_parameter_that_says_nothing_of_itself_is_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Plain(Model):
        name: ClassVar[str] = "plain"
        power: float = 1.0

    with pytest.raises(TypeError, match="field power of plain: found no help, expected a field that 'param' makes"):
        Plain()


@pytest.mark.parametrize("points", ["toy = toymodels:param", "other = toymodels:Toy"])
def test_what_is_not_the_model_it_says_is_refused(path: Path, points: str) -> None:
    install(path, points)
    with pytest.raises(UsageError, match=r"of package 'toy-models' .*expected a subclass of distagg.models.Model"):
        list(registry().values())


@pytest.mark.parametrize("name", ["rrf", "rankagg"])
def test_a_built_in_name_is_refused(path: Path, name: str) -> None:
    install(path, f"{name} = toymodels:Toy")
    with pytest.raises(UsageError, match=f"package 'toy-models' registers a model '{name}'.*'distagg' already has"):
        list(registry())
    assert registry()["rrf"] is MODELS["rrf"]


def test_two_packages_of_one_name_are_refused(path: Path) -> None:
    install(path, "toy = toymodels:Toy")
    install(path, "toy = toymodels:Toy", package="more-models")
    with pytest.raises(UsageError, match=r"registers a model 'toy'.*'(toy|more)-models' already has"):
        list(registry())
