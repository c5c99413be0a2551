"""Every model and completion by name. A model's module is imported when the model is first asked for.

The command line, its help, ``distagg models`` and the contract suite read these tables. Other packages add models by
entry points of the group ``distagg.models`` (``NAME = "package.module:Class"``). They are looked up only when a name is
not built in, or when all names are listed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from distagg.errors import UsageError, unknown
from distagg.models.base import Model, make

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from distagg.models.completion.model import Completion

T = TypeVar("T")
M = TypeVar("M", bound=Model)
ENTRY_POINTS = "distagg.models"  # the group


class Registry(Mapping[str, type[T]], Generic[T]):
    """Classes by name. Names cost nothing; a class is imported on access.

    ``built_in`` says where the classes of ``package`` are. Other packages add subclasses of ``base`` by entry points of
    ``group``; each class has its name as the attribute ``name``.

    >>> "rrf" in MODELS, MODELS["rrf"].summary
    (True, 'reciprocal rank fusion: sum of 1 / (c + rank)')
    """

    def __init__(
        self,
        built_in: dict[str, str],
        group: str = "",
        package: str = "distagg.models",
        base: str = "distagg.models.Model",
    ) -> None:
        self.built_in, self.group, self.package, self.base = built_in, group, package, base
        self.kind = base.rpartition(".")[2].lower()

    def __getitem__(self, name: str) -> type[T]:
        if name in self.built_in:
            module, _, attribute = self.built_in[name].partition(":")
            built_in: type[T] = getattr(import_module(f"{self.package}.{module}"), attribute)
            return built_in
        return self._load(self.installed[name])

    def __contains__(self, name: object) -> bool:
        return name in self.built_in or name in self.installed

    def __iter__(self) -> Iterator[str]:
        yield from (*self.built_in, *self.installed)

    def __len__(self) -> int:
        return len(self.built_in) + len(self.installed)

    @cached_property
    def installed(self) -> dict[str, EntryPoint]:
        """Entry points of other packages, by name. A name that is taken is refused."""
        from importlib.metadata import entry_points  # late: it takes 10 ms to load

        points: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group) if self.group else ():
            if point.name in points or point.name in self.built_in or point.name in ALIASES:
                owner = _package(points[point.name]) if point.name in points else "distagg"
                raise UsageError(
                    f"package '{_package(point)}' registers a {self.kind} '{point.name}' (entry point {point.value}), "
                    f"but '{owner}' already has a {self.kind} of that name; rename the package's {self.kind}, or "
                    "uninstall the package"
                )
            points[point.name] = point
        return points

    def _load(self, point: EntryPoint) -> type[T]:
        """The class behind another package's entry point."""
        where = f"{self.kind} '{point.name}' of package '{_package(point)}' (entry point {point.value})"
        try:
            loaded = point.load()
        except Exception as error:
            raise UsageError(
                f"{where} cannot be loaded: {type(error).__name__}: {error}; repair or uninstall the package"
            ) from error
        module, _, attribute = self.base.rpartition(".")
        base = getattr(import_module(module), attribute)
        if not (isinstance(loaded, type) and issubclass(loaded, base)) or getattr(loaded, "name", "") != point.name:
            raise UsageError(
                f"{where}: found {loaded!r}, expected a subclass of {self.base} whose name is '{point.name}'; "
                "repair or uninstall the package"
            )
        return loaded


MODELS: Registry[Model] = Registry(
    {
        "borda": "positional.model:Borda",
        "mean": "positional.model:Mean",
        "median": "positional.model:Median",
        "bestinput": "positional.model:BestInput",
        "rrf": "positional.model:Rrf",
        "isr": "positional.model:Isr",
        "log_isr": "positional.model:LogIsr",
        "rbc": "positional.model:Rbc",
        "combsum": "positional.scores:CombSum",
        "combmnz": "positional.scores:CombMnz",
        "combgmnz": "positional.scores:CombGmnz",
        "combanz": "positional.scores:CombAnz",
        "combmax": "positional.scores:CombMax",
        "combmin": "positional.scores:CombMin",
        "combmed": "positional.scores:CombMed",
        "probfuse": "positional.placed:ProbFuse",
        "segfuse": "positional.placed:SegFuse",
        "slidefuse": "positional.placed:SlideFuse",
        "posfuse": "positional.placed:PosFuse",
        "mapfuse": "positional.placed:MapFuse",
        "bayesfuse": "positional.placed:BayesFuse",
        "ssra": "positional.semi:SemiSupervised",
        "rra": "positional.robust:Rra",
        "dibra": "positional.robust:Dibra",
        "stagg_bc": "positional.expected:StaggBorda",
        "stagg_rrf": "positional.expected:StaggRrf",
        "condorcet": "majority.model:Condorcet",
        "copeland": "majority.model:Copeland",
        "schulze": "majority.rules:Schulze",
        "ranked_pairs": "majority.rules:RankedPairs",
        "kwiksort": "majority.rules:KwikSort",
        "outranking": "majority.model:Outranking",
        "mc1": "majority.model:Mc1",
        "mc2": "majority.model:Mc2",
        "mc3": "majority.model:Mc3",
        "mc4": "majority.model:Mc4",
        "sup_mc": "majority.supervised:SupervisedChain",
        "kemeny": "distances.model:Kemeny",
        "bradley_terry": "pairwise.model:BradleyTerry",
        "thurstone": "pairwise.model:Thurstone",
        "win_rate": "pairwise.rates:WinRate",
        "newman": "pairwise.rates:Newman",
        "pagerank": "pairwise.walks:PageRank",
        "eigen": "pairwise.walks:Eigen",
        "rank_centrality": "pairwise.walks:RankCentrality",
        "hodgerank": "pairwise.hodge:HodgeRank",
        "crowd_bt": "crowd.model:CrowdBt",
        "noisy_bt": "crowd.model:NoisyBt",
        "elo": "replayed.model:Elo",
        "glicko2": "replayed.model:Glicko2",
        "plackett_luce": "plackett_luce.model:PlackettLuce",
        "svp": "projection.model:Svp",
        "mallows": "distances.model:Mallows",
        "partial_mallows": "distances.partial:PartialMallows",
        "cranking": "distances.model:Cranking",
        "cps": "distances.cps:Cps",
        "mpm": "mpm.model:Mpm",
        "theta_mpm": "mpm.model:ThetaMpm",
        "mixture_mpm": "mpm.mixture:MixtureMpm",
        "theta_sup_mpm": "mpm.model:ThetaSupMpm",
        "crf": "crf.model:Crf",
        "lambdarank": "scorers.scorer:LambdaRank",
        "stagg": "scorers.scorer:Stagg",
        "lambdamart": "boosted.model:LambdaMart",
        "blend": "boosted.blend:Blend",
    },
    ENTRY_POINTS,
)
FAMILIES = {  # folders of distagg/models, or modules of them
    "positional": "points for each place in a list",
    "positional.scores": "normalised scores",
    "positional.placed": "chance of a relevant item at each place",
    "majority": "majorities of lists",
    "pairwise": "strengths from pairs",
    "crowd": "strengths from votes of a crowd",
    "replayed": "ratings replayed battle by battle",
    "plackett_luce": "strengths from lists as sequences of choices",
    "projection": "low-rank fit of the pair matrix",
    "mpm": "Multinomial Preference Model",
    "distances": "orders nearest to the lists",
    "crf": "conditional random field over rankings",
    "scorers": "scoring functions on features of lists",
    "boosted": "boosted trees and ensembles",
}
# Other names of models, accepted wherever the model's own name is.
ALIASES = {"rankagg": "lambdarank", "wsum": "combsum", "wmnz": "combmnz"}
COMPLETIONS: Registry[Completion] = Registry(
    {
        "pmf": "completion.model:Pmf",
        "neighbours": "completion.model:Neighbours",
        "constant": "completion.model:Constant",
    }
)


def family_of(name: str) -> str:
    """What the models beside this one have in common; models of other packages are one family.

    >>> family_of("rrf")
    'points for each place in a list'
    """
    module = MODELS.built_in.get(name, "").partition(":")[0]
    return FAMILIES.get(module) or FAMILIES.get(module.partition(".")[0], "models of other packages")


def is_model(name: str) -> bool:
    """Whether a model, or an alias of one, has that name, in any case."""
    return known_name(name) in MODELS


def known_name(name: str) -> str:
    """A model's own name, for one of its names in any case; a name of no model stays as it is.

    >>> known_name("RRF"), known_name("RankAgg"), known_name("rff")
    ('rrf', 'lambdarank', 'rff')
    """
    if name in MODELS.built_in:
        return name
    if name.lower() in MODELS.built_in or name.lower() in ALIASES:
        return ALIASES.get(name.lower(), name.lower())
    if name in MODELS:
        return name
    return next((known for known in MODELS if known.lower() == name.lower()), name)


def draws(model: type[Model]) -> bool:
    """Whether the model draws at random: such a model has a parameter ``seed``."""
    return any(field.name == "seed" for field in dataclasses.fields(model))


def reseeded(model: Model, seed: int | None) -> Model:
    """The model with another seed; unchanged where no seed is given or the model draws nothing.

    >>> reseeded(model_named("crf"), 5).seed, reseeded(model_named("rrf"), 5)
    (5, Rrf())
    """
    return model if seed is None or not draws(type(model)) else dataclasses.replace(model, seed=seed)  # type: ignore[call-arg]


def model_named(name: str, settings: dict[str, Any] | None = None, *, seed: int = 0) -> Model:
    """A model by its name. ``lambdarank`` with ``ranker=lightgbm`` is ``lambdamart``.

    Parameters
    ----------
    name
        One of ``MODELS``, or of ``ALIASES``; case does not matter.
    settings
        Its parameters by name; text is read as the parameter's type.
    seed
        The seed of a model that draws, unless the settings have a seed of their own.

    Returns
    -------
    Model
        Ready for ``fit``, ``rank`` and ``compare``.

    >>> model_named("rrf", {"c": "10"})
    Rrf(c=10.0)
    >>> model_named("lambdarank", {"ranker": "lightgbm"}).name
    'lambdamart'
    """
    name = known_name(name)
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    settings = dict(settings or {})
    if name == "lambdarank" and settings.get("ranker") == "lightgbm":
        from distagg.models.scorers.scorer import LambdaRank

        del settings["ranker"]
        return _seeded(MODELS["lambdamart"], {"features": LambdaRank().features, **settings}, seed)
    return _seeded(MODELS[name], settings, seed)


def completion_named(name: str, settings: dict[str, Any] | None = None, *, seed: int = 0) -> Completion:
    """A completion of ratings by its name; a number is the constant to fill in. ``seed`` is as in ``model_named``.

    >>> completion_named("2.5")
    Constant(value=2.5)
    """
    with contextlib.suppress(ValueError):
        return _seeded(COMPLETIONS["constant"], {"value": float(name)}, seed)
    if name not in COMPLETIONS:
        raise unknown("completion", name, [*COMPLETIONS, "a number"])
    return _seeded(COMPLETIONS[name], settings or {}, seed)


def _seeded(model: type[M], settings: dict[str, Any], seed: int) -> M:
    return make(model, {"seed": seed, **settings} if draws(model) else settings)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module.partition(".")[0]
