"""Restores a degraded photograph with the library alone, without the service."""

from pathlib import Path

from aps_core.engines.engine import Engine
from aps_core.imaging import images
from aps_core.tasks import Inputs, RestoreSpec, run


def main(photo: Path, output: Path, **sampler: int) -> None:
    """Treats ``photo`` as blurred, restores it at 128 pixels by the recommended settings but for
    ``sampler``, writes the picture.
    """
    engine = Engine.load("embedded")
    spec = RestoreSpec(
        operator={"type": "gaussian_blur", "sigma": 1.5}, working_size=128, sampler=sampler
    )
    result = run(
        spec,
        Inputs(images.open_image(photo.read_bytes())),
        engine,
        on_step=lambda p: print(f"step {p.step}/{p.total}: misfit {p.info.misfit:.4f}"),
    )
    output.write_bytes(result.files()[0].data)


if __name__ == "__main__":
    main(Path(__file__).parent / "photos" / "chelsea.png", Path("chelsea.restored.png"))
