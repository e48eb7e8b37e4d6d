"""KernelWizard's kernel-applying network (Tran et al. 2021, "Explore Image Deblurring via Encoded
Blur Kernel Space").

Maps a sharp picture and a blur code to the blurred picture. Plain torch, with the parameter names
of the published checkpoint. The checkpoint's other half, which estimates codes from pairs of
pictures, is not used.
"""

from __future__ import annotations

from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from aps_core.checkpoints.files import read_tensors
from aps_core.checkpoints.metadata import read_json
from aps_core.errors import WeightsInvalid

STRIDE = 128
"""Pixels per entry of the code along one axis: two stride-2 convolutions and five U-Net levels."""


class KernelWizardConfig(BaseModel):
    """Shape of the network. The defaults are the published ``GOPRO_wVAE`` network."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    nf: int = 64
    front_RBs: int = 10
    back_RBs: int = 20
    kernel_dim: int = 512


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a residual connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Maps (B, C, H, W) to the same shape."""
        changed: Tensor = self.conv2(torch.relu(self.conv1(x_BCHW)))
        return x_BCHW + changed


class UNetLevel(nn.Module):
    """Halves the resolution, runs the level below, doubles it again. The innermost level appends
    the code.
    """

    def __init__(
        self,
        outer: int,
        inner: int,
        below: UNetLevel | None,
        code: int = 0,
        outermost: bool = False,
    ) -> None:
        super().__init__()
        self.outermost = outermost
        down = nn.Conv2d(outer, inner, 4, stride=2, padding=1, bias=False)
        self.down = nn.Sequential(down) if outermost else nn.Sequential(nn.LeakyReLU(0.2), down)
        if below is not None:
            self.submodule = below
        up = nn.ConvTranspose2d(
            inner + code if below is None else 2 * inner,
            outer,
            4,
            stride=2,
            padding=1,
            bias=outermost,
        )
        self.up = (
            nn.Sequential(nn.ReLU(), up, nn.Tanh()) if outermost else nn.Sequential(nn.ReLU(), up)
        )

    def forward(self, x_BCHW: Tensor, code_BKhw: Tensor) -> Tensor:
        """Inner levels concatenate their input to their output (skip connection)."""
        h = self.down(x_BCHW)
        h = (
            self.submodule(h, code_BKhw)
            if hasattr(self, "submodule")
            else torch.cat([h, code_BKhw], dim=1)
        )
        h = self.up(h)
        return h if self.outermost else torch.cat([h, x_BCHW], dim=1)


class KernelWizard(nn.Module):
    """Maps pictures (B, 3, H, W) in [0, 1] and codes (B, K, H / 128, W / 128) to blurred pictures,
    unclamped.
    """

    def __init__(self, config: KernelWizardConfig) -> None:
        super().__init__()
        nf = config.nf
        self.feature_extractor = nn.Sequential(
            *(nn.Conv2d(3, nf, 3, padding=1), nn.LeakyReLU(0.1)),
            *(nn.Conv2d(nf, nf, 3, stride=2, padding=1), nn.LeakyReLU(0.1)),
            *(nn.Conv2d(nf, nf, 3, stride=2, padding=1), nn.LeakyReLU(0.1)),
            *(ResidualBlock(nf) for _ in range(config.front_RBs)),
        )
        level = UNetLevel(8 * nf, 8 * nf, None, code=config.kernel_dim)
        for outer in (4 * nf, 2 * nf, nf):
            level = UNetLevel(outer, 2 * outer, level)
        self.adapter = nn.Module()
        self.adapter.model = UNetLevel(nf, nf, level, outermost=True)
        self.recon_trunk = nn.Sequential(
            *(ResidualBlock(nf) for _ in range(config.back_RBs)),
            *(nn.Conv2d(nf, 4 * nf, 3, padding=1), nn.PixelShuffle(2), nn.LeakyReLU(0.1)),
            *(nn.Conv2d(nf, 4 * 64, 3, padding=1), nn.PixelShuffle(2), nn.LeakyReLU(0.1)),
            *(nn.Conv2d(64, 64, 3, padding=1), nn.LeakyReLU(0.1)),
            nn.Conv2d(64, 3, 3, padding=1),
        )

    def forward(self, x_BCHW: Tensor, code_BKhw: Tensor) -> Tensor:
        """H and W must be multiples of 128."""
        adapted = self.adapter.model(self.feature_extractor(x_BCHW), code_BKhw)  # type: ignore[operator]
        change: Tensor = self.recon_trunk(adapted)
        return x_BCHW + change


def load_kernel_wizard(
    folder: Path, device: torch.device | str = "cpu"
) -> tuple[KernelWizard, KernelWizardConfig]:
    """Loads ``model.safetensors``, and ``config.json`` if the network differs from the published
    one.

    Raises:
        WeightsMissing: the file is absent.
        WeightsInvalid: it is damaged or a pickle (as the release is), or a key is missing, unknown
            or of another shape.
    """
    stored = folder / "config.json"
    try:
        config = (
            KernelWizardConfig.model_validate(read_json(stored))
            if stored.is_file()
            else KernelWizardConfig()
        )
    except ValidationError as error:
        raise WeightsInvalid(
            f"{stored} does not describe a KernelWizard network: {error.errors()[0]['msg']}"
        ) from error
    with torch.device("meta"):
        net = KernelWizard(config)
    shapes = {key: value.shape for key, value in net.state_dict().items()}
    net.load_state_dict(
        read_tensors(
            folder / "model.safetensors", shapes, ignore=("kernel_extractor.",), device=device
        ),
        assign=True,
    )
    return net.eval().requires_grad_(False), config
