"""Energy of the processor, from its own counters (RAPL of Intel and AMD, as Linux shows them).

Virtual machines and macOS do not show them; elsewhere, reading them may need root.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True)
class Counters:
    """Counters of all packages of the machine's processors."""

    microjoules: dict[Path, int]

    @classmethod
    def now(cls, folder: Path = POWERCAP) -> Counters | None:
        """None if the machine does not show them to this process."""
        zones = sorted(folder.glob("intel-rapl:[0-9]*"))
        # others are parts of a package (cores, memory), or a laptop's platform, which includes it
        packages = [
            zone / "energy_uj"
            for zone in zones
            if (zone / "name").read_text().startswith("package")
        ]
        try:
            return cls({path: int(path.read_text()) for path in packages}) if packages else None
        except PermissionError:
            return None

    def joules_since(self) -> float:
        """What the machine's processors have used since, for all programs together. A counter that
        passed its largest value meanwhile began again at 0.
        """
        spent = 0
        for path, before in self.microjoules.items():
            now = int(path.read_text())
            largest = int((path.parent / "max_energy_range_uj").read_text())
            spent += now - before if now >= before else now - before + largest
        return spent / 1e6
