"""How much of this machine's cores went to others: on a virtual machine, a measurement meanwhile says little."""

from __future__ import annotations

import os
from pathlib import Path

_STOLEN = 8  # the place of this figure in the first line of /proc/stat, the word "cpu" being at 0


def stolen_s(told: Path = Path("/proc/stat")) -> float:
    """Seconds of all cores together, since the machine was started; 0 on a system that does not tell."""
    try:
        first = told.read_text().partition("\n")[0].split()
        return int(first[_STOLEN]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0
