"""The settings of a fusion as plain numbers, read from a model, and their export as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from distagg.errors import UsageError
from distagg.models import Model
from distagg.models.positional.model import Rrf
from distagg.models.positional.scores import BOUNDS, CombSum
from distagg.models.weights import AGREEMENT, AUTO

RULES = ("rrf", "combsum", "combmnz")
WINDOW = 100  # items of each list where the model takes whole lists


class Export(NamedTuple):
    """The query to send to an engine, and notes on what the engine does differently from the model."""

    value: dict[str, Any]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fusion:
    """A weighted sum over lists, of 1 / (c + rank) if ``norm`` is empty, otherwise of normalised scores."""

    rule: str  # the model's name
    experts: tuple[str, ...]
    weights: tuple[float, ...]
    depth: int  # 0: whole lists
    window: int  # items to take from each list: the depth, or a limit for whole lists
    c: float = 0.0
    norm: str = ""
    unlisted: str = "zero"
    bounds: tuple[tuple[float, float] | None, ...] = ()  # low and high of each expert's scores, if they were given
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return len(set(self.weights)) <= 1

    def weighing(self) -> Fusion:
        """The fusion without its lists of weight 0, if at least two other lists remain."""
        kept = [n for n, weight in enumerate(self.weights) if weight]
        if len(kept) == len(self.weights) or len(kept) < 2:
            return self
        out = ", ".join(name for name, weight in zip(self.experts, self.weights, strict=True) if not weight)
        return Fusion(
            self.rule,
            tuple(self.experts[n] for n in kept),
            tuple(self.weights[n] for n in kept),
            self.depth,
            self.window,
            self.c,
            self.norm,
            self.unlisted,
            tuple(self.bounds[n] for n in kept),
            (*self.notes, f"lists of weight 0 are left out: {out}; items that only they hold are not found"),
        )

    def depth_notes(self, field: str) -> tuple[str, ...]:
        """Notes on the number of items to take from each list."""
        if self.depth:
            return ()
        return (f"the model takes whole lists, but the query sets a limit: {field} is {self.window}",)


def fusion_of(model: Model, experts: tuple[str, ...], window: int = WINDOW) -> Fusion:
    """The fusion that a model computes; a UsageError for models other than rrf, combsum and combmnz."""
    if not isinstance(model, Rrf | CombSum) or model.name not in RULES:
        raise UsageError(
            f"found the model {model.name}, expected rrf, combsum or combmnz: search engines can run these; "
            "tune one of them with 'distagg tune'"
        )
    if len(experts) < 2:
        raise UsageError(f"found {len(experts)} experts, expected two or more: the names of the lists that are fused")
    depth = model.depth
    if model.weights in (AUTO, AGREEMENT):
        raise UsageError(f"{model.name} with weights={model.weights} has no weights yet; tune it with 'distagg tune'")
    resolved = model.resolved(experts).get("expert_weight")
    weights = (1.0,) * len(experts) if resolved is None else tuple(resolved.tolist())
    shared: dict[str, Any] = {"rule": model.name, "experts": experts, "depth": depth, "window": depth or window}
    if isinstance(model, Rrf):
        if model.c == "auto":
            raise UsageError("rrf with c=auto has no constant yet; tune it with 'distagg tune', or give c=60")
        return Fusion(**shared, weights=weights, c=float(model.c), bounds=(None,) * len(experts))
    bounds = {name: (ends[0], ends[1]) for name, ends in BOUNDS.numbers(model.bounds).items()}
    notes: tuple[str, ...] = ()
    if model.norm == "auto":
        notes = ("norm=auto is minmax here: the lists of an engine have scores",)
    return Fusion(
        **shared,
        weights=weights,
        norm="minmax" if model.norm == "auto" else model.norm,
        unlisted=model.unlisted,
        bounds=tuple(bounds.get(name) for name in experts),
        notes=notes,
    )


def whole(fusion: Fusion, field: str, most: int = 0) -> tuple[int, tuple[str, ...]]:
    """The constant c rounded to a whole number from 1 to ``most``, as a product requires, and notes about it."""
    nearest = min(max(1, round(fusion.c)), most or round(fusion.c) + 1)
    if nearest == fusion.c:
        return nearest, ()
    bounds = f"from 1 to {most:,}" if most else "of at least 1"
    return nearest, (f"{field} is a whole number {bounds}: {nearest} stands for c={fusion.c:g}",)


def check_sum(fusion: Fusion, product: str, norms: tuple[str, ...], *, bounds: bool) -> None:
    """Refuse what a product's weighted sum of scores cannot compute."""
    advice = "export as json, or tune with --export so that only what it can compute is tried"
    if fusion.rule == "combmnz":
        raise UsageError(f"{product} cannot multiply by the number of lists that hold an item (combmnz); {advice}")
    if fusion.unlisted == "ignore":
        raise UsageError(f"{product} cannot leave absent lists out of a mean (unlisted=ignore); {advice}")
    given = any(fusion.bounds)
    if given and not bounds:
        raise UsageError(f"{product} cannot take given bounds of scores; {advice}")
    if fusion.norm not in norms and not (given and all(fusion.bounds)):
        raise UsageError(f"{product} has no norm '{fusion.norm}', it has {', '.join(norms)}; {advice}")


def plain_json(fusion: Fusion) -> Export:
    """The settings and the formula as JSON, for any other engine."""
    if fusion.norm:
        of = "place" if fusion.norm in ("discount", "rank", "borda") else "score"
        formula = f"sum over lists of weight * {fusion.norm}({of})"
        if fusion.rule == "combmnz":
            formula = f"({formula}) * the number of lists that hold the item"
    else:
        formula = "sum over lists of weight / (c + rank)"
    settings: dict[str, Any] = {"rule": fusion.rule, "score": formula, "depth": fusion.depth}
    settings |= {"norm": fusion.norm, "unlisted": fusion.unlisted} if fusion.norm else {"c": fusion.c}
    lists = []
    for name, weight, ends in zip(fusion.experts, fusion.weights, fusion.bounds, strict=True):
        row: dict[str, Any] = {"expert": name, "weight": weight}
        lists.append(row | ({"bounds": list(ends)} if ends else {}))
    return Export(settings | {"lists": lists}, fusion.notes)
