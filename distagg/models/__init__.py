"""All models, by name. The registry writes the command line's help and ``distagg models``."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from distagg.errors import unknown
from distagg.models.base import Model, NotConvergedWarning, Params, make
from distagg.models.boosted.blend import Blend
from distagg.models.boosted.model import LambdaMart
from distagg.models.completion.model import Completion, Constant
from distagg.models.completion.neighbours import Neighbours
from distagg.models.completion.pmf import Pmf
from distagg.models.crf.model import Crf
from distagg.models.distances.cps import Cps
from distagg.models.distances.cranking import Cranking
from distagg.models.distances.kemeny import Kemeny
from distagg.models.distances.mallows import Mallows
from distagg.models.majority.model import Condorcet, Copeland, Mc1, Mc2, Mc3, Mc4
from distagg.models.mpm.model import Mpm, ThetaMpm, ThetaSupMpm
from distagg.models.pairwise.model import BradleyTerry, Thurstone
from distagg.models.plackett_luce.model import PlackettLuce
from distagg.models.positional.expected import StaggBorda, StaggRrf
from distagg.models.positional.model import BestInput, Borda, CombMnz, CombSum, Mean, Median, Rrf
from distagg.models.projection.model import Svp
from distagg.models.scorers.lambdarank import LambdaRank
from distagg.models.scorers.stagg import Stagg

MODELS: dict[str, type[Model]] = {
    model.name: model
    for model in (
        Borda, Mean, Median, BestInput,
        Rrf, CombSum, CombMnz, StaggBorda, StaggRrf,
        Condorcet, Copeland, Mc1, Mc2, Mc3, Mc4, Kemeny,
        BradleyTerry, Thurstone, PlackettLuce, Svp,
        Mallows, Cranking, Cps,
        Mpm, ThetaMpm, ThetaSupMpm,
        Crf, LambdaRank, Stagg, LambdaMart, Blend,
    )
}  # fmt: skip


ALIASES = {"rankagg": LambdaRank.name}  # another name of a model, which is accepted wherever the model's is
COMPLETIONS: dict[str, type[Completion]] = {one.name: one for one in (Pmf, Neighbours, Constant)}


def is_model(name: str) -> bool:
    """Whether a model, or an alias of one, has that name."""
    return name in MODELS or name in ALIASES


def draws(model: type[Model]) -> bool:
    """Whether the model draws at random: it has a seed then."""
    return any(field.name == "seed" for field in dataclasses.fields(model))


def reseeded(model: Model, seed: int | None) -> Model:
    """The model, drawing from that seed; as it is without one, or where it draws nothing.

    >>> reseeded(Crf(), 5).seed, reseeded(Rrf(), 5)
    (5, Rrf(c=60.0))
    """
    return model if seed is None or not draws(type(model)) else dataclasses.replace(model, seed=seed)  # type: ignore[call-arg]


def completion_named(name: str, settings: dict[str, Any] | None = None, *, seed: int = 0) -> Completion:
    """A completion of ratings by its name; a number is the constant to fill in. ``seed`` is as in ``model_named``.

    >>> completion_named("2.5")
    Constant(value=2.5)
    """
    with contextlib.suppress(ValueError):
        return Constant(value=float(name))
    if name not in COMPLETIONS:
        raise unknown("completion", name, [*COMPLETIONS, "a number"])
    made = _made(COMPLETIONS[name], settings or {}, seed)
    assert isinstance(made, Completion)
    return made


def model_named(name: str, settings: dict[str, Any] | None = None, *, seed: int = 0) -> Model:
    """A model by its name. ``lambdarank`` with ``ranker=lightgbm`` is ``lambdamart``.

    Parameters
    ----------
    name
        One of ``MODELS``, or of ``ALIASES``.
    settings
        Its parameters by name; text is read as the parameter's type.
    seed
        What a model that draws starts from, unless its settings have a seed of their own.

    Returns
    -------
    Model
        Ready for ``fit``, ``rank`` and ``compare``.

    >>> model_named("rrf", {"c": "10"})
    Rrf(c=10.0)
    >>> model_named("lambdarank", {"ranker": "lightgbm"}).name
    'lambdamart'
    """
    name = ALIASES.get(name, name)
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    given = dict(settings or {})
    if name == LambdaRank.name and given.get("ranker") == "lightgbm":
        del given["ranker"]
        return _made(LambdaMart, {"features": LambdaRank().features, **given}, seed)
    return _made(MODELS[name], given, seed)


def _made(model: type[Model], settings: dict[str, Any], seed: int) -> Model:
    return make(model, {"seed": seed, **settings} if draws(model) else settings)


__all__ = [
    "ALIASES", "COMPLETIONS", "MODELS", "Completion", "Model", "NotConvergedWarning", "Params", "completion_named",
    "draws", "is_model", "model_named", "reseeded",
]  # fmt: skip
