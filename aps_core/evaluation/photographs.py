"""Clean photographs to degrade: any folder, and the paper's selections of FFHQ and ImageNet."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from aps_core.errors import ImageRejected, InvalidSpec
from aps_core.imaging import images
from aps_core.imaging.resampling import resize

SUFFIXES = {".png", ".jpg", ".jpeg", ".webp"}
Photographs = list[tuple[str, Tensor]]
"""(name, (3, size, size) in [-1, 1])."""


def photographs(folder: Path, size: int, limit: int | None = None) -> Photographs:
    """Every picture of a folder, sorted by name.

    Raises:
        InvalidSpec: the folder holds no picture.
    """
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if not found:
        raise InvalidSpec(f"{folder} holds no PNG, JPEG or WebP picture.")
    return [(path.stem, square(path, size)) for path in found[:limit]]


def ffhq(folder: Path, size: int, limit: int | None = None) -> Photographs:
    """The paper's 100 pictures of the FFHQ validation set: the first 100 by name, including
    sub-folders.

    Raises:
        InvalidSpec: the folder holds fewer pictures.
    """
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if len(found) < 100:
        raise InvalidSpec(
            f"{folder} holds {len(found)} pictures; the paper's selection is the first 100 of the"
            " FFHQ validation set."
        )
    return [(path.stem, square(path, size)) for path in found[:100][:limit]]


def imagenet(folder: Path, index: Path, size: int, limit: int | None = None) -> Photographs:
    """The paper's 100 of the ImageNet validation set: classes 0, 10, ..., 990 of a list of ``FILE
    CLASS`` lines.

    The list is ``imagenet_val_1k.txt`` of XingangPan/deep-generative-prior. Pictures may lie in
    sub-folders.

    Raises:
        InvalidSpec: a line of the list cannot be read, or a picture it names is not in the folder.
    """
    chosen = []
    for number, line in enumerate(index.read_text().splitlines(), 1):
        name, _, label = line.strip().rpartition(" ")
        if line.strip() and not (name and label.isdecimal()):
            raise InvalidSpec(
                f"{index}, line {number}: {line!r} is not 'FILE CLASS', a file name and a class"
                " number."
            )
        if name and int(label) % 10 == 0:
            chosen.append(name.strip())
    here = {path.name: path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES}
    missing = [name for name in chosen if Path(name).name not in here]
    if missing:
        raise InvalidSpec(
            f"{folder} lacks {len(missing)} of the {len(chosen)} pictures {index} selects, the"
            f" first being {missing[0]}."
        )
    return [(Path(name).stem, square(here[Path(name).name], size)) for name in chosen[:limit]]


def square(path: Path, size: int) -> Tensor:
    """The centre square of a picture as (3, size, size) in [-1, 1].

    Raises:
        InvalidSpec: the file cannot be read; the message names it.
    """
    try:
        x = images.to_tensor(images.open_image(path.read_bytes()))
    except ImageRejected as error:
        raise InvalidSpec(f"{path}: {error}") from error
    side = min(x.shape[-2:])
    top, left = (x.shape[-2] - side) // 2, (x.shape[-1] - side) // 2
    return resize(x[:, top : top + side, left : left + side], (size, size)).clamp(-1, 1)
