"""What a simulated run counts. Plain numbers, cheap enough to be always on; latencies only where they are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from dirigo.kernel import Address


@dataclass(slots=True)
class Metrics:
    """Counts since the cluster was made."""

    events: int = 0
    emitted: int = 0  # outputs of sources
    data_delivered: int = 0  # forwards and hand-backs included
    control_delivered: int = 0  # duplicates included
    duplicates: int = 0
    executed: int = 0  # critical messages included
    latencies_s: dict[Address, list[float]] = field(default_factory=dict)  # from ``created`` to the end of the execution
