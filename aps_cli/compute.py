"""Runs one job locally or on a service, with the same inputs and result files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aps_cli.device import default_device, max_pixels
from aps_cli.display import Display
from aps_cli.files import opened, read
from aps_core.errors import InvalidSpec
from aps_core.runtime.durations import in_words

if TYPE_CHECKING:
    from aps_core.engines.engine import Engine
    from aps_core.tasks import Inputs

Files = Mapping[str, bytes]
"""Result files by name, as the service names them: ``result.png``, ``sample-1.png``, ...,
``result.json``.
"""


@dataclass(frozen=True)
class Backend:
    """Where a job runs: on the service at ``server``, or locally if that is None."""

    server: str | None
    """URL of the service."""
    api_key: str | None
    device: str | None
    """Local device, ``cpu`` or ``cuda``; None: CUDA if available."""
    max_pixels: int | None
    """Largest result computed locally, in pixels; None: the default of the device."""

    def __post_init__(self) -> None:
        """Checks the address of the service.

        Raises:
            InvalidSpec: it is not a URL.
        """
        if self.server:
            from aps_client.connection import Connection

            Connection(self.server)

    def compute(
        self, spec: dict[str, Any], pictures: Mapping[str, Path | None], suffix: str
    ) -> Files:
        """Runs the job and displays its progress.

        Args:
            spec: JSON of the task's spec.
            pictures: paths of the input pictures by field name.
            suffix: file name extension that selects the picture format, such as ``.png``.

        Raises:
            APSError: the spec or a picture is invalid, or the job failed.
        """
        given = {name: read(path) for name, path in pictures.items() if path is not None}
        if not self.server:
            return self._run_locally(_with_prior(spec, given), given, suffix)
        if suffix.lower() != ".png":
            raise InvalidSpec(
                f"With --server, pictures are PNG files; --output must end in .png, not {suffix!r}."
            )
        return self._run_remotely(self.server, spec, given)

    def _run_remotely(
        self, server: str, spec: dict[str, Any], pictures: Mapping[str, bytes]
    ) -> Files:
        from aps_client import Client

        with Client(server, self.api_key) as client, Display() as display:
            task = spec["type"]
            job = client.submit(
                task,
                dict(pictures),
                **{name: value for name, value in spec.items() if name != "type"},
            )
            try:
                for event in client.events(job):
                    if event.type == "progress":
                        display.step(event.data)
                    elif event.type == "inner":
                        display.inner(event.data)
                    else:
                        display.phase(
                            str(event.data.get("phase") or event.data.get("state") or event.type)
                        )
                return client.result(job).files
            except KeyboardInterrupt:
                client.cancel(job)
                click.echo(f"Job {job.id} canceled.", err=True)
                raise

    def _run_locally(
        self, spec_json: dict[str, Any], pictures: Mapping[str, bytes], suffix: str
    ) -> Files:
        from aps_core.checkpoints import checkpoint_cache
        from aps_core.runtime.process import be_reproducible
        from aps_core.tasks import Inputs, run, validate_spec
        from aps_core.tasks.estimate import check_size

        spec = validate_spec(spec_json)
        inputs = Inputs(**{name: opened(name, data) for name, data in pictures.items()})
        spec.check_inputs(inputs)
        checkpoint_cache.require(spec.checkpoints)
        if spec_json.get("operator") == {"type": "auto"}:
            _check_needed(inputs)
        spec = spec.resolved()
        image = inputs.image.size if inputs.image is not None else None
        device = default_device(self.device)
        be_reproducible()
        engine = _engine(spec.prior, device)
        if pictures:
            limit = self.max_pixels or max_pixels(device)
            cost = check_size(spec, image, limit, engine.seconds_per_token())
            size = f"{cost.output[0]}x{cost.output[1]} pixels, " if cost.output else ""
            click.echo(f"{size}{cost.tokens} tokens, about {in_words(cost.seconds)}", err=True)
        with Display() as display:
            result = run(
                spec,
                inputs,
                engine,
                lambda progress: display.step(progress.event()),
                on_inner=lambda info: display.inner(
                    {
                        "step": info.step,
                        "total": info.total,
                        "inner_step": info.iteration,
                        "inner_steps": info.inner_steps,
                    }
                ),
            )
        files = {file.name: file.data for file in result.files(suffix)}
        return {**files, "result.json": json.dumps(result.sidecar(), indent=1).encode()}


def _with_prior(spec: dict[str, Any], pictures: Mapping[str, bytes]) -> dict[str, Any]:
    """The spec with the prior specialised in what the picture shows, if it names none. A service
    chooses by itself.
    """
    from aps_core.identify.diagnosis import shows_text
    from aps_core.tasks.content import leaves_prior_open, specialised

    if not leaves_prior_open(spec["type"], spec):
        return spec
    name = "whole" if "whole" in pictures else "image"
    shown = opened(name, pictures[name])
    prior = specialised(shows_text(shown), spec)
    return {**spec, "prior": prior} if prior else spec


def _check_needed(inputs: Inputs) -> None:
    """Diagnoses the picture as a job of 'auto' does, which would load its prior first.

    Raises:
        NothingToRestore: nothing is wrong that an operator describes.
    """
    from aps_core.identify.diagnosis import examine
    from aps_core.identify.kinds.auto import proposed
    from aps_core.identify.search import Search

    search = Search(inputs.examined(), part=inputs.picture().size)
    diagnosis = examine(search.upload)
    if not diagnosis.shaken:
        proposed(diagnosis, search)


@cache
def _engine(prior: str, device: str) -> Engine:
    """The prior, loaded once for all pictures of a command."""
    from aps_core.engines.engine import Engine

    return Engine.load(prior, device)
