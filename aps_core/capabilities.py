"""Capabilities of this installation, read from the registry: source of the API's and studio's
forms.
"""

from __future__ import annotations

from typing import Any

from aps_core import __version__
from aps_core.checkpoints import checkpoint_cache
from aps_core.losses import LossSpec
from aps_core.operators import OperatorSpec
from aps_core.priors import ImagePriorSpec, PriorSpec, TextPriorSpec
from aps_core.priors.base import PRESETS
from aps_core.registry import AnyOf, Spec, json_schema
from aps_core.samplers import SamplerSpec
from aps_core.style_measures import StyleMeasureSpec
from aps_core.tasks import PictureTaskSpec, TaskSpec


def describe() -> dict[str, Any]:
    """All families with their JSON Schemas, as plain JSON. Needs no torch."""
    return {
        "version": __version__,
        "tasks": [
            {
                "type": name,
                "summary": cls.summary(),
                "pictures": dict(cls.pictures),
                "schema": json_schema(cls),
            }
            for name, cls in ((name, TaskSpec.named(name)) for name in sorted(TaskSpec.family))
        ],
        "operators": [
            {**member, **_weights(OperatorSpec.named(member["type"]))}
            for member in _members(OperatorSpec)
        ],
        "samplers": _members(SamplerSpec),
        "losses": _members(LossSpec),
        "style_measures": [
            {**member, **_weights(StyleMeasureSpec.named(member["type"]))}
            for member in _members(StyleMeasureSpec)
        ],
        "priors": [
            {
                "name": name,
                "summary": cls.summary(),
                **_native(cls),
                "recommended": _recommended(cls),
                **_presets(cls),
                **_weights(cls),
                "better_with": cls.better_with,
                "lacking": checkpoint_cache.missing(cls.better_with),
            }
            for name, cls in ((name, PriorSpec.named(name)) for name in sorted(PriorSpec.family))
        ],
    }


def _members(root: type[Spec]) -> list[dict[str, Any]]:
    """Every member of a family by name."""
    return [
        {"type": name, "summary": cls.summary(), "schema": json_schema(cls)}
        for name, cls in sorted(root.family.items())
    ]


def _recommended(prior: type[PriorSpec]) -> dict[str, Any]:
    """Default settings of a prior: for pictures per sampler and loss, for text the sampler's."""
    if not issubclass(prior, ImagePriorSpec):
        return {"sampler": prior.recommended}
    return {
        "sampler": {
            name: prior.recommended_for(SamplerSpec.named(name)) for name in SamplerSpec.family
        },
        "loss": prior.recommended_loss,
    }


def _presets(prior: type[PriorSpec]) -> dict[str, Any]:
    """The sampler of every picture task that names none; for every preset and sampler, the settings
    that differ from the recommended ones.
    """
    if not issubclass(prior, ImagePriorSpec):
        return {}
    name_of_prior = prior.model_fields["type"].default
    tasks = {
        name: cls.model_construct(type=name, prior=name_of_prior)
        for name, cls in TaskSpec.family.items()
        if issubclass(cls, PictureTaskSpec)
        and any(isinstance(extra, AnyOf) for extra in cls.model_fields["sampler"].metadata)
    }
    samplers = {name: SamplerSpec.named(name) for name in SamplerSpec.family}
    usual = {name: prior.recommended_for(cls) for name, cls in samplers.items()}
    return {
        "default_samplers": {name: task.default_sampler() for name, task in tasks.items()},
        "presets": {
            preset: {
                name: {
                    field: value
                    for field, value in prior.recommended_for(cls, preset=preset).items()
                    if value != usual[name][field]
                }
                for name, cls in samplers.items()
            }
            for preset in PRESETS
        },
    }


def _weights(
    cls: type[PriorSpec] | type[OperatorSpec] | type[StyleMeasureSpec],
) -> dict[str, Any]:
    """Names of the weights, whether all are installed, and which are missing."""
    missing = checkpoint_cache.missing(cls.weights)
    return {"weights": cls.weights, "available": missing is None, "missing": missing}


def _native(prior: type[PriorSpec]) -> dict[str, Any]:
    """Output type of the prior, and the size and kind of pictures it was trained on."""
    if issubclass(prior, TextPriorSpec):
        return {"makes": "text", "native_length": prior.native_length}
    return (
        {"makes": "picture", "native_size": prior.native_size, "content": prior.content}
        if issubclass(prior, ImagePriorSpec)
        else {}
    )


def operator_table() -> str:
    """The operators as a Markdown table: degradation, fields and defaults."""
    lines = ["| operator | what happened to the picture | fields (default) |", "|---|---|---|"]
    for name in sorted(OperatorSpec.family):
        cls = OperatorSpec.named(name)
        fields = [
            f"`{field}`" + ("" if info.is_required() else f" ({info.default})")
            for field, info in cls.model_fields.items()
            if field != "type"
        ]
        lines.append(f"| `{name}` | {cls.summary()} | {', '.join(fields)} |")
    return "\n".join(lines)
