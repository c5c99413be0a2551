"""The public names of the engine are where they are said to be, and cost nothing before they are used."""

from __future__ import annotations

import subprocess
import sys

import distagg
import distagg.engine


def test_every_public_name_is_loaded_when_it_is_used() -> None:
    for package in (distagg, distagg.engine):
        for name in package.__all__:
            assert getattr(package, name) is not None


def test_the_functions_of_distagg_are_functions_even_where_a_module_has_their_name() -> None:
    import distagg.engine.rank

    assert callable(distagg.rank)
    assert callable(distagg.compare)
    assert callable(distagg.evaluate_runs)


def test_ranking_does_not_load_what_compares_or_inspects() -> None:
    code = "import sys, distagg.engine.rank; print([n for n in sys.modules if n.startswith('distagg.engine.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "distagg.engine.rank" in loaded
    assert "inspect" not in loaded
    assert "compare" not in loaded
