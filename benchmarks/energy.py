"""Energy of the processor, from its own counters (RAPL of Intel and AMD, as Linux shows them).

Virtual machines and macOS do not show them; elsewhere, reading them may need root.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True)
class Counters:
    """Counters of all packages of the machine's processors, in microjoules."""

    read: dict[Path, int]

    @classmethod
    def now(cls, folder: Path = POWERCAP) -> Counters | None:
        """None if the machine does not show them to this process."""
        packages = sorted(folder.glob("intel-rapl:[0-9]*/energy_uj"))
        # cores, memory and so on have a second number; a package includes its cores
        packages = [path for path in packages if path.parent.name.count(":") == 1]
        try:
            return cls({path: int(path.read_text()) for path in packages}) if packages else None
        except PermissionError:
            return None

    def joules_since(self) -> float:
        """Energy of the whole machine's processors since, of all programs together. Counters that
        have begun again count once.
        """
        spent = 0
        for path, before in self.read.items():
            now = int(path.read_text())
            largest = int((path.parent / "max_energy_range_uj").read_text())
            spent += now - before if now >= before else now - before + largest
        return spent / 1e6
