"""Models combine the preferences of a query into scores: ``registry`` has them by name, ``base`` says what one is."""

from distagg.errors import NotConvergedWarning
from distagg.models.base import Model
from distagg.models.completion.model import Completion
from distagg.models.registry import (
    ALIASES,
    COMPLETIONS,
    MODELS,
    completion_named,
    draws,
    family_of,
    is_model,
    known_name,
    model_named,
    reseeded,
)
from distagg.models.rounds import Params

__all__ = [
    "ALIASES",
    "COMPLETIONS",
    "MODELS",
    "Completion",
    "Model",
    "NotConvergedWarning",
    "Params",
    "completion_named",
    "draws",
    "family_of",
    "is_model",
    "known_name",
    "model_named",
    "reseeded",
]
