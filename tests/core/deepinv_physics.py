"""Restores measurements of deepinv's own physics objects; run in a process of its own.

deepinv imports packages that its physics do not use. One of them, torchvision, does not work with a
CPU build of torch. ``scripts/setup dev`` therefore installs deepinv alone, and empty modules take
the place of the others.
"""

import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

import aps_core as aps
from aps_core.imaging.picture_like import picture
from examples.own_prior import Neighbours

ABSENT = ("torchvision", "h5py", "einops", "natsort")


class Empty(ModuleType):
    """A module of which every name is a submodule or an empty class."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or type(name, (), {})


class Finder(MetaPathFinder, Loader):
    """Finds :class:`Empty` modules for the absent packages."""

    def find_spec(self, fullname, path=None, target=None):
        absent = fullname.partition(".")[0] in ABSENT
        return ModuleSpec(fullname, self, is_package=True) if absent else None

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        """Empty modules need nothing."""


def main() -> None:
    sys.meta_path.append(Finder())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from deepinv import physics
        from deepinv.physics.functional.blur import gaussian_blur
    shape = (3, 32, 24)
    truth = picture("examples/photos/coffee.png")[:, :32, :24].clamp(-1, 1)
    noise = physics.GaussianNoise(0.05)
    prior: Any = Neighbours()
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "blur": (physics.BlurFFT(shape, gaussian_blur(sigma=1.0), noise_model=noise), {}),
        "half the size": (
            physics.Downsampling(img_size=shape, factor=2, filter="bicubic", noise_model=noise),
            {},
        ),
        "a vector": (physics.CompressedSensing(200, shape, noise_model=noise), {}),
        "no noise model": (physics.Inpainting(shape, mask=0.5), {"sigma": 0.05}),
    }
    sampler = {"type": "aps", "steps": 3, "inner_steps": 12}
    loss = {"type": "measurement", "perceptual_weight": 0.0}
    for name, (operator, more) in kinds.items():
        torch.manual_seed(0)
        x_BCHW = (truth[None] + 1) / 2
        y = operator(x_BCHW)
        size: dict[str, Any] = {} if getattr(operator, "img_size", None) else {"size": shape[1:]}
        measurement = aps.Measurement(y, operator, **{"sigma": "auto", **more, **size})
        restored = aps.restore(measurement, prior, sampler=sampler, loss=loss)
        other = aps.restore(measurement, prior, sampler="prior_only", loss=loss)
        residual, without = (
            float((operator.A((result.pictures_BCHW + 1) / 2) - y).abs().mean())
            for result in (restored, other)
        )
        assert restored.pictures_BCHW.shape == (1, *shape), name
        assert residual < 0.8 * without, name
        assert abs(residual - restored.misfit_B[0]) < 1e-3 * residual, name
        print(name, residual, without)


if __name__ == "__main__":
    main()
