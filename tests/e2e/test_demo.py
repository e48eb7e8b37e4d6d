"""The demonstration's two jobs, on a running service."""

from __future__ import annotations

from pathlib import Path

from aps_cli.demo import restore_both
from aps_core.evaluation.metrics import psnr
from aps_core.imaging import images
from tests.stack import Stack

EXAMPLES = Path(__file__).parents[2] / "examples"
PHOTO, PAGE = EXAMPLES / "photos/coffee.png", EXAMPLES / "documents/page-comfortaa.png"


def test_a_photograph_and_a_page_are_restored_with_their_priors(
    stack: Stack, tmp_path: Path, capsys
) -> None:
    restore_both(stack.url, PHOTO, PAGE, tmp_path)
    said = capsys.readouterr().out
    assert said.index("prior embedded_denoiser;") < said.index("prior embedded_documents;")
    x, y, restored = (
        images.to_tensor(images.open_image(path.read_bytes()))[None]
        for path in (
            PAGE,
            tmp_path / "measurement-page-comfortaa.png",
            tmp_path / "restored-page-comfortaa.png",
        )
    )
    assert psnr(restored, x) > psnr(y, x) + 1
    assert images.open_image((tmp_path / "before-after.png").read_bytes()).height > 2 * 384
