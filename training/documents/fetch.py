"""Fetches the packages of :mod:`training.documents.sources` and unpacks them without installing.

    python -m training.documents.fetch --out CORPUS

Needs ``apt-get`` and ``dpkg`` (Debian 12). What is already there is kept.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from training.documents import sources


def fetch(out: Path) -> None:
    """Leaves every package in ``out/unpacked/NAME``, its archive in ``out/debs``."""
    debs, unpacked = out / "debs", out / "unpacked"
    debs.mkdir(parents=True, exist_ok=True)
    missing = [name for name in sources.packages() if not any(debs.glob(f"{name}_*.deb"))]
    if missing:
        subprocess.run(["apt-get", "download", *missing], cwd=debs, check=True)
    for name in sources.packages():
        if not (unpacked / name).is_dir():
            target = unpacked / f"{name}.tmp"
            target.mkdir(parents=True, exist_ok=True)
            subprocess.run(["dpkg", "-x", next(debs.glob(f"{name}_*.deb")), target], check=True)
            target.rename(unpacked / name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the documents corpus")
    fetch(parser.parse_args().out)


if __name__ == "__main__":
    main()
