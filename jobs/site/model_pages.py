"""A page for every model, from the registry: idea, formula, cost, parameters, an example that is run here, paper."""

from __future__ import annotations

import dataclasses
import io
import re
import tomllib
import warnings
from contextlib import redirect_stdout
from pathlib import Path

from distagg.models import ALIASES, MODELS, Model, family_of

HERE = Path(__file__).parent
NOTATION = r"""
| symbol | meaning |
|---|---|
| $s_i$ | score of item $i$ in a query of $M$ items; larger is better |
| $r_e(i)$ | rank of item $i$ in the list of expert $e$; smaller is better |
| $k_e$ | length of that list |
| $E_i$ | experts whose lists hold item $i$ |
| $w_e$ | weight of expert $e$, 1 unless `weights` is given |
| $x_e(i)$ | normalised score of item $i$ in the list of expert $e$ (`norm`); in trained models its features |
| $m_{ij}$ | lists that put item $i$ before item $j$ |
| $n_{ij}$ | comparisons that item $i$ won against item $j$; $Y_e(i, j)$: what expert $e$ prefers, as a number |
| $\sigma$, $\Phi$ | logistic and normal distribution functions |
| $[\,\cdot\,]$ | 1 if the condition holds, else 0; $\overline{x}_{z}$: mean of $x$ over $z$ |
"""
LISTS = """import distagg

runs = {
    "bm25": {"cats": {"a": 12.1, "b": 11.7, "c": 9.3, "e": 2.0}, "dogs": {"k": 9.0, "m": 8.5, "n": 1.0}},
    "dense": {"cats": {"b": 0.82, "c": 0.79, "d": 0.4}, "dogs": {"m": 0.9, "k": 0.7, "l": 0.2}},
    "clicks": {"cats": {"c": 31, "b": 30, "a": 2}, "dogs": {"m": 12, "l": 5}},
}
"""
UNSUPERVISED = """ranking = distagg.rank("{name}", runs)
for item, score in ranking["cats"].items():
    print(item, round(score, 4))
"""
SUPERVISED = """labels = {{"cats": {{"a": 0, "b": 1, "c": 2, "d": 0, "e": 0}}}}
fitted = distagg.fit("{name}", runs, labels=labels)
ranking = distagg.rank(fitted, runs)
for item, score in ranking["dogs"].items():
    print(item, round(score, 4))
"""
PAIRS = """import distagg
import pyarrow as pa

votes = "a>b ann, a>b bob, b>c ann, a>c bob, c>a eve, b>a eve".split(", ")
pairs = pa.table({{"winner": [v[0] for v in votes], "loser": [v[2] for v in votes], "expert": [v[4:] for v in votes]}})
ranking = distagg.rank("{name}", pairs)
for item, score in zip(ranking["item"].to_pylist(), ranking["score"].to_pylist()):
    print(item, round(score, 4))
"""


def example_of(model: type[Model]) -> str:
    """A program that ranks a few items by the model."""
    if "lists" not in model.inputs:
        return PAIRS.format(name=model.name)
    return LISTS + (SUPERVISED if model.supervised else UNSUPERVISED).format(name=model.name)


def output_of(program: str) -> str:
    """What a program prints."""
    printed = io.StringIO()
    with redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit to a few items need not converge
        exec(compile(program, "<example>", "exec", dont_inherit=True), {"__name__": "__main__"})
    return printed.getvalue()


def ideas(guide: str) -> dict[str, str]:
    """What the guide says of every model. An entry begins with the names of its models, costs and papers."""
    entries: dict[str, str] = {}
    for entry in re.split(r"^- (?=\*\*`)", guide, flags=re.MULTILINE)[1:]:
        body = re.split(r"\n(?!  |\n)", entry, maxsplit=1)[0]  # up to the next line that is not indented
        head, text = re.split(r"\)\.\s", body, maxsplit=1)
        text = re.sub(r"\]\((?=\w+\.md)", "](../jobs/guides/", text)
        for name in re.findall(r"\*\*`(\w+)`\*\*", head.partition("(")[0]):
            entries[name] = re.sub(r"^  ", "", text, flags=re.MULTILINE).strip()
    return entries


def formulas() -> dict[str, list[str]]:
    """The formulas of every model, in TeX, short enough for a phone where they have several parts."""
    tables = tomllib.loads((HERE / "formulas.toml").read_text(encoding="utf-8"))
    return {name: [part.strip() for part in re.split(r", \\quad |\n\n", text)] for name, text in tables.items()}


def page_of(name: str, idea: str, tex: list[str]) -> str:
    """The page of one model, in Markdown."""
    model = MODELS[name]
    program = example_of(model)
    near = [f"[`{other}`]({other}.md)" for other in MODELS if family_of(other) == family_of(name) and other != name]
    facts = {
        "family": f"{family_of(name)}" + (f": {', '.join(near)}" if near else ""),
        "takes": " and ".join(model.inputs) + (f"; pairs with `{model.pairs_setting}`" if model.pairs_setting else ""),
        "learns from labels": "yes" if model.supervised else "no",
        "cost of a query": model.cost,
        "split queries": "yes: statistics add up over chunks" if model.additive else "",
        "needs": f"`{model.package}`" if model.package else "",
        "other names": ", ".join(f"`{alias}`" for alias, own in ALIASES.items() if own == name),
        "paper": model.paper,
        "": "[all models](index.md)",
    }
    lines = ["---", "orphan: true", "---", f"# {name}", "", model.summary[0].upper() + model.summary[1:] + ".", ""]
    lines += ["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in facts.items() if value), ""]
    lines += ["## Idea", "", idea or model.summary, ""]
    if tex:
        lines += ["## Formula", "", *(f"$$\n{formula}\n$$\n" for formula in tex)]
        lines += ["[What the symbols mean](index.md#notation)", ""]
    lines += ["## Parameters", "", "| name | default | meaning |", "|---|---|---|"]
    lines += [f"| `{key}` | {default} | {about} |" for key, default, about in parameters(model)]
    lines += ["", f'On the command line `-p NAME=VALUE`, in Python `distagg.rank("{name}", data, NAME=VALUE)`.', ""]
    lines += ["## Example", "", f"```python\n{program}```", "", f"```text\n{output_of(program)}```", ""]
    return "\n".join(lines)


def parameters(model: type[Model]) -> list[tuple[str, str, str]]:
    """Name, default and meaning of every hyperparameter, as cells of a table."""
    rows = []
    for field in dataclasses.fields(model):
        text = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        meaning = field.metadata["help"].replace("|", r"\|")
        choices = field.metadata["choices"]
        if choices and len(choices) <= 12 and not all(choice in meaning for choice in choices):
            meaning += "; one of " + ", ".join(f"`{choice}`" for choice in choices)
        rows.append((field.name, f"`{text}`" if text else "", meaning))
    return rows


def index() -> str:
    """All models by family, with the notation of the formulas."""
    lines = [
        "# All models",
        "",
        f"{len(MODELS)} models; those with * learn from labels. "
        "[Which one for your data](../jobs/guides/models.md#which-model-for-my-data).",
        "",
    ]
    families: dict[str, list[str]] = {}
    for name in MODELS:
        families.setdefault(family_of(name), []).append(name)
    for family, names in families.items():
        lines += [
            f"## {family[0].upper() + family[1:]}",
            "",
            "| model | what it does | cost of a query |",
            "|---|---|---|",
        ]
        for name in names:
            model = MODELS[name]
            lines.append(f"| [`{name}`]({name}.md){'*' if model.supervised else ''} | {model.summary} | {model.cost} |")
        lines.append("")
    lines += ["## Notation", NOTATION]
    return "\n".join(lines)


def write(folder: Path, guide: str) -> None:
    """Write the pages of all models into a folder."""
    folder.mkdir(parents=True)
    ideas_of, formulas_of = ideas(guide), formulas()
    for name in MODELS:
        (folder / f"{name}.md").write_text(
            page_of(name, ideas_of.get(name, ""), formulas_of.get(name, [])), encoding="utf-8"
        )
    (folder / "index.md").write_text(index(), encoding="utf-8")
