"""The API reference: every public name says what it takes and gives."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest

import distagg

FUNCTIONS = [name for name in distagg.__all__ if inspect.isfunction(getattr(distagg, name))]
CLASSES = [name for name in distagg.__all__ if inspect.isclass(getattr(distagg, name))]


def _section(text: str, title: str) -> str:
    """What stands under a heading of a numpydoc docstring, up to the next."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_it_takes_and_gives(name: str) -> None:
    function = getattr(distagg, name)
    text = inspect.getdoc(function) or ""
    told = re.findall(r"^(\**\w+)$", _section(text, "Parameters"), flags=re.MULTILINE)
    takes = inspect.signature(function).parameters.values()
    assert told == [f"**{one.name}" if one.kind is one.VAR_KEYWORD else one.name for one in takes]
    assert _section(text, "Returns").strip()


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_explains_its_fields_and_methods(name: str) -> None:
    made = getattr(distagg, name)
    text = inspect.getdoc(made) or ""
    for field in dataclasses.fields(made):
        assert f"``{field.name}``" in text, field.name
    methods = [key for key, value in vars(made).items() if not key.startswith("_") and not _is_field(value)]
    assert methods
    for method in methods:
        assert inspect.getdoc(getattr(made, method)), f"{name}.{method}"


def _is_field(value: object) -> bool:
    return inspect.ismemberdescriptor(value)


def test_every_name_is_a_function_a_class_or_the_models() -> None:
    assert {*FUNCTIONS, *CLASSES, "MODELS"} == set(distagg.__all__)
    assert "``MODELS``" in (distagg.__doc__ or "")
    assert all(model.summary and model.paper and model.cost for model in distagg.MODELS.values())
