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
from aps_core.tasks import Inputs, PictureResult, RestoreSpec, run


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


def restore_here(spec_json: dict[str, Any], photo: Path, mask: Path | None, output: Path, device: str | None, max_pixels: int | None) -> None:
    """Validates, loads the engine, samples, writes the picture(s) and the sidecar."""
    from aps_core.engine import ImageEngine

    spec = RestoreSpec.model_validate(spec_json)
    picture = images.open_image(photo.read_bytes())
    inputs = Inputs(picture, images.open_image(mask.read_bytes()) if mask else None)
    size = (picture.width, picture.height)
    spec.check(size, (inputs.mask.width, inputs.mask.height) if inputs.mask else None, picture.has_alpha)
    where = default_device(device)
    engine = ImageEngine.load(spec.prior, where)
    limit = max_pixels or (CPU_MAX_PIXELS if where == "cpu" else GPU_MAX_PIXELS)
    cost = check_size(spec, size, limit, engine.seconds_per_token())
    width, height = spec.output_size(size)
    click.echo(f"{photo.name}: {width}x{height} pixels, {cost.tokens} tokens, about {cost.seconds:.0f} s", err=True)
    with steps_bar() as advance:
        result = run(spec, inputs, engine, lambda p: advance(p.step, p.total, f"misfit {p.info.misfit:.4f} (noise {p.noise_floor:.4f})"))
    assert isinstance(result, PictureResult)
    write_pictures(result, output)


def write_pictures(result: PictureResult, output: Path) -> None:
    """Writes the samples beside ``output`` and the sidecar; prints the paths, and the notes on stderr."""
    for file in result.files(output.suffix):
        path = output if file.name.startswith("result.") else output.with_name(f"{output.stem}-{file.name}")
        path.write_bytes(file.data)
        click.echo(path)
    output.with_suffix(".json").write_text(json.dumps(result.sidecar(), indent=1) + "\n")
    for note in result.notes:
        click.echo(note, err=True)


def restore_remote(server: str, spec: dict[str, Any], photo: Path, mask: Path | None, output: Path) -> None:
    """The same through a running service: submit, follow the events, download.

    Raises:
        APSError: the service refused the job or the job failed; the message is the service's.
    """
    import httpx

    files = {"image": photo.read_bytes(), **({"mask": mask.read_bytes()} if mask else {})}
    try:
        with httpx.Client(base_url=server, timeout=60) as http:
            answer = http.post("/v1/restore", files=files, data={"spec": json.dumps({k: v for k, v in spec.items() if k != "type"})})
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


def degrade(photo: Path, operator: dict[str, Any], sigma: float, seed: int, mask: Path | None, output: Path) -> None:
    """Measures a clean photo: y = A(x) + sigma * noise, written as an 8-bit picture."""
    import torch

    spec = OperatorSpec.named(operator["type"]).model_validate(operator)
    picture = images.open_image(photo.read_bytes())
    x = images.to_tensor(picture)
    mask_HW = images.mask_to_tensor(images.open_image(mask.read_bytes())) if mask else None
    factor = getattr(spec, "factor", 1)
    x = x[:, : x.shape[1] // factor * factor, : x.shape[2] // factor * factor]
    y = spec.bind((3, *x.shape[1:]), "cpu", mask_HW)(x[None])[0]
    output.write_bytes(images.encode_png(noise.add_noise(y, sigma, torch.Generator().manual_seed(seed)).clamp(-1, 1)))
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
