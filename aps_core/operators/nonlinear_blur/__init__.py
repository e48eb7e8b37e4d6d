"""Nonlinear blur: a network that applies an encoded camera blur."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.checkpoints import checkpoint_cache
from aps_core.imaging.resampling import mirror_pad
from aps_core.operators.base import Bound, OperatorSpec, Shape

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


class NonlinearBlur(OperatorSpec):
    """Real camera blur, applied by a network (KernelWizard); needs its weights installed as
    'kernelwizard'.
    """

    type: Literal["nonlinear_blur"] = "nonlinear_blur"
    seed: int = Field(
        0,
        ge=0,
        lt=2**32,
        description=(
            "Seed of the random blur code; 0 at 256x256 pixels is the code published results use."
        ),
    )
    weights: ClassVar[tuple[str, ...]] = ("kernelwizard",)

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        """Draws one entry of the blur code per 128x128 pixels, as the network's strides require.

        Published results use 256x256 pictures with 2x2 entries; they do not cover larger pictures.
        Here larger pictures get more entries, which keeps the size of the blur constant in pixels.
        Sides that are not multiples of 128 are mirrored up to the next multiple and cropped
        afterwards.

        Raises:
            WeightsMissing, WeightsInvalid: the network's file is absent or damaged.
        """
        from aps_core.operators.nonlinear_blur.network import STRIDE, load_kernel_wizard

        net, config = load_kernel_wizard(checkpoint_cache.path(self.weights[0]), device)
        _, height, width = shape_CHW
        rows, columns = -(-height // STRIDE), -(-width // STRIDE)
        # the published blur code comes from NumPy's legacy generator
        drawn = 1.2 * np.random.RandomState(self.seed).randn(1, config.kernel_dim, rows, columns)
        code = torch.from_numpy(drawn.astype(np.float32)).to(device)

        @cache
        def network(dtype: torch.dtype) -> torch.nn.Module:
            return net if dtype == torch.float32 else deepcopy(net).to(dtype)

        def blur(x_BCHW: Tensor) -> Tensor:
            padded = mirror_pad(x_BCHW, (0, rows * STRIDE - height), (0, columns * STRIDE - width))
            blurred: Tensor = network(x_BCHW.dtype)(
                (padded + 1) / 2, code.to(x_BCHW.dtype).expand(len(x_BCHW), -1, -1, -1)
            )
            return 2 * blurred[..., :height, :width] - 1

        return Bound(blur, drawn={"code": code}, clips=True)
