"""What a strict server would refuse in a JSON value, by the JSON schema that it publishes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "number": (int, float)}


def objections(value: Any, schema: dict[str, Any], where: str = "") -> Iterator[str]:
    """Wrong types, missing and unknown fields, values not in a list or below the least."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str):
            yield f"{where}: {value!r} is neither a number nor text"
        return
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{where}: {value!r} is not {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is not one of {schema['enum']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{where}: {value!r} is less than {schema['minimum']}"
    if "anyOf" in schema and all(any(objections(value, one, where)) for one in schema["anyOf"]):
        yield f"{where}: {value!r} fits none of {len(schema['anyOf'])} forms"
    if kind == "array":
        for n, one in enumerate(value):
            yield from objections(one, schema.get("items", {}), f"{where}[{n}]")
    if kind == "object":
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (f"{where}.{name} is missing" for name in schema.get("required", ()) if name not in value)
        for name, one in value.items():
            if name in known:
                yield from objections(one, known[name], f"{where}.{name}")
            elif isinstance(others, dict):
                yield from objections(one, others, f"{where}.{name}")
            elif known and not others and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{where}.{name} is unknown"
