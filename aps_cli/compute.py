"""One job, computed here or by a service: the same spec and pictures in, the same files out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from aps_cli.device import default_device
from aps_cli.display import Display
from aps_core.errors import InvalidSpec

Files = Mapping[str, bytes]
"""What a job made, under the names the service gives: ``result.png``, ``sample-1.png``, ...,
``result.json``.
"""


@dataclass(frozen=True)
class Where:
    """Where a job is computed: at ``server``, or here."""

    server: str | None
    api_key: str | None
    device: str | None
    max_pixels: int | None

    def compute(
        self, spec: dict[str, Any], pictures: Mapping[str, Path | None], suffix: str
    ) -> Files:
        """Runs the job and shows how it goes. Pictures are written as ``suffix``.

        Raises:
            APSError: the spec or a picture is wrong, or the work failed, here or there.
        """
        given = {name: path for name, path in pictures.items() if path is not None}
        if not self.server:
            return self._here(spec, given, suffix)
        if suffix.lower() != ".png":
            raise InvalidSpec(
                f"A service makes PNG pictures; --output must end in .png, not {suffix!r}."
            )
        return self._there(self.server, spec, given)

    def _there(self, server: str, spec: dict[str, Any], pictures: Mapping[str, Path]) -> Files:
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
                    else:
                        display.phase(
                            str(event.data.get("phase") or event.data.get("state") or event.type)
                        )
                return client.result(job).files
            except KeyboardInterrupt:
                client.cancel(job)
                click.echo(f"Job {job.id} canceled.", err=True)
                raise

    def _here(self, spec_json: dict[str, Any], paths: Mapping[str, Path], suffix: str) -> Files:
        from aps_core.checkpoints import checkpoint_cache
        from aps_core.imaging import images
        from aps_core.runtime.engine import Engine
        from aps_core.runtime.estimate import CPU_MAX_PIXELS, GPU_MAX_PIXELS, check_size
        from aps_core.runtime.process import be_reproducible
        from aps_core.tasks import Inputs, run, validate_spec

        spec = validate_spec(spec_json)
        inputs = Inputs(
            **{name: images.open_image(path.read_bytes()) for name, path in paths.items()}
        )
        spec.check_inputs(inputs)
        checkpoint_cache.require(spec.checkpoints)
        spec = spec.resolved()
        image = (inputs.image.width, inputs.image.height) if inputs.image is not None else None
        where = default_device(self.device)
        be_reproducible()
        engine = Engine.load(spec.prior, where)
        if paths:
            limit = self.max_pixels or (CPU_MAX_PIXELS if where == "cpu" else GPU_MAX_PIXELS)
            cost = check_size(spec, image, limit, engine.seconds_per_token())
            size = f"{cost.output[0]}x{cost.output[1]} pixels, " if cost.output else ""
            click.echo(f"{size}{cost.tokens} tokens, about {cost.seconds:.0f} s", err=True)
        with Display() as display:
            result = run(spec, inputs, engine, lambda progress: display.step(progress.event()))
        files = {file.name: file.data for file in result.files(suffix)}
        return {**files, "result.json": json.dumps(result.sidecar(), indent=1).encode()}
