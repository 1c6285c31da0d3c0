"""Sequence models: what they declare, how they are metered, conditioned and named."""

from posteer.models.abilities import abilities, kinds_of_models
from posteer.models.conditioned import condition
from posteer.models.exact import ExactModel
from posteer.models.function import FunctionModel
from posteer.models.meter import Metered, QueryCount
from posteer.models.protocol import Can, Model, ModelState
from posteer.models.registry import KINDS, open_model
from posteer.models.shipped import load, model_facts, shipped_models

__all__ = [
    "KINDS",
    "Can",
    "ExactModel",
    "FunctionModel",
    "Metered",
    "Model",
    "ModelState",
    "QueryCount",
    "abilities",
    "condition",
    "kinds_of_models",
    "load",
    "model_facts",
    "open_model",
    "shipped_models",
]
