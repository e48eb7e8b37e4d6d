"""``aps restore`` and ``aps degrade``: pictures in, pictures out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from aps_core import images, noise
from aps_core.errors import APSError, InvalidSpec
from aps_core.estimate import CPU_MAX_PIXELS, GPU_MAX_PIXELS, check_size
from aps_core.operators import OperatorSpec
from aps_core.tasks import Inputs, PictureResult, run, validate_spec


def default_device(device: str | None) -> str:
    """The device asked for, or cuda where there is one.

    Raises:
        InvalidSpec: cuda was asked for and is absent.
    """
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InvalidSpec("--device cuda: this machine has no CUDA device, or torch was built without it.")
    return device


def compute_here(spec_json: dict[str, Any], pictures: dict[str, Path | None], output: Path, device: str | None, max_pixels: int | None) -> None:
    """Validates, loads the engine, samples, writes the picture(s) and the sidecar. ``pictures``: files by their name in the task."""
    from aps_core.engine import ImageEngine

    spec = validate_spec(spec_json)
    inputs = Inputs(**{name: images.open_image(path.read_bytes()) for name, path in pictures.items() if path is not None})
    spec.check_inputs(inputs)
    size = (inputs.image.width, inputs.image.height) if inputs.image else None
    where = default_device(device)
    engine = ImageEngine.load(spec.prior, where)
    limit = max_pixels or (CPU_MAX_PIXELS if where == "cpu" else GPU_MAX_PIXELS)
    cost = check_size(spec, size, limit, engine.seconds_per_token())
    width, height = cost.output or (0, 0)
    click.echo(f"{output.name}: {width}x{height} pixels, {cost.tokens} tokens, about {cost.seconds:.0f} s", err=True)
    with steps_bar() as advance:
        result = run(spec, inputs, engine, lambda p: advance(p.step, p.total, _step_text(p.info.misfit, p.noise_floor, spec.type)))
    assert isinstance(result, PictureResult)
    write_pictures(result, output)


def _step_text(misfit: float, noise_floor: float, task: str) -> str:
    if task == "stylize":
        return f"style distance {misfit:.4f}"
    return f"misfit {misfit:.4f}" + (f" (noise {noise_floor:.4f})" if noise_floor else "")


def write_pictures(result: PictureResult, output: Path) -> None:
    """Writes the samples beside ``output`` and the sidecar; prints the paths, and the notes on stderr."""
    for file in result.files(output.suffix):
        path = output if file.name.startswith("result.") else output.with_name(f"{output.stem}-{file.name}")
        path.write_bytes(file.data)
        click.echo(path)
    output.with_suffix(".json").write_text(json.dumps(result.sidecar(), indent=1) + "\n")
    for note in result.notes:
        click.echo(note, err=True)


def compute_remote(server: str, spec: dict[str, Any], pictures: dict[str, Path | None], output: Path) -> None:
    """The same through a running service: submit, follow the events, download.

    Raises:
        APSError: the service refused the job or the job failed; the message is the service's.
    """
    import httpx

    files = {name: path.read_bytes() for name, path in pictures.items() if path is not None}
    try:
        with httpx.Client(base_url=server, timeout=60) as http:
            answer = http.post(f"/v1/{spec['type']}", files=files, data={"spec": json.dumps({k: v for k, v in spec.items() if k != "type"})})
            job = _json(answer)
            with steps_bar() as advance, http.stream("GET", job["urls"]["events"], timeout=None) as events:
                for line in events.iter_lines():
                    if line.startswith("data:") and "step" in (event := json.loads(line[5:])):
                        advance(event["step"], event["total"], f"misfit {event['misfit']:.4f}")
            job = _json(http.get(job["urls"]["self"]))
            if job["state"] != "succeeded":
                raise APSError(f"Job {job['id']} {job['state']}: {(job.get('error') or {}).get('detail', '')}")
            output.write_bytes(http.get(f"{job['urls']['self']}/artifacts/result.png").raise_for_status().content)
            output.with_suffix(".json").write_bytes(http.get(f"{job['urls']['self']}/artifacts/result.json").raise_for_status().content)
    except httpx.HTTPError as error:
        raise APSError(f"{server}: {error}") from error
    click.echo(output)


def degrade(photo: Path, operator: dict[str, Any], sigma: float, peak: float | None, seed: int, mask: Path | None, output: Path) -> None:
    """Measures a clean photo, written as an 8-bit picture: y = A(x), counted in photons where there is a ``peak``, + sigma * noise."""
    import torch

    spec = OperatorSpec.named(operator["type"]).model_validate(operator)
    picture = images.open_image(photo.read_bytes())
    x = images.to_tensor(picture)
    mask_HW = images.mask_to_tensor(images.open_image(mask.read_bytes())) if mask else None
    factor = getattr(spec, "factor", 1)
    x = x[:, : x.shape[1] // factor * factor, : x.shape[2] // factor * factor]
    y = spec.bind((3, *x.shape[1:]), "cpu", mask_HW)(x[None])[0]
    y = y[:1] if torch.equal(y, y[:1].expand_as(y)) else y  # what has no colour has no coloured noise
    generator = torch.Generator().manual_seed(seed)
    y = y if peak is None else noise.add_poisson(y, peak, generator)
    output.write_bytes(images.encode_png(noise.add_noise(y, sigma, generator).clamp(-1, 1).expand(3, -1, -1)))
    click.echo(output)


@contextmanager
def steps_bar() -> Iterator[Any]:
    """A progress bar over reverse steps; yields ``advance(step, total, text)``."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("step {task.completed:.0f}/{task.total:.0f}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("loading", total=1)

        def advance(step: int, total: int, text: str) -> None:
            progress.update(task, completed=step, total=total, description=text)

        yield advance


def _json(answer: Any) -> dict[str, Any]:
    body = answer.json()
    if answer.status_code >= 400:
        # 409 and 5xx are about the service's state, the rest about the request
        kind = APSError if answer.status_code == 409 or answer.status_code >= 500 else InvalidSpec
        raise kind(body.get("detail", answer.text))
    return body  # type: ignore[no-any-return]
