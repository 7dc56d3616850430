"""What the runtime itself costs, as measured on real workers: what simulations of it go by.

``dirigo costs`` measures these and writes them to a file; ``costs.json`` beside this file is one such measurement.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import msgspec

from dirigo.errors import DirigoError

_FILE = "costs.json"


class CostsError(DirigoError):
    """A file with costs is none."""


class RuntimeCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds, unless said otherwise."""

    hop_s: float  # from the end of an execution until the message is with its receiver's fetcher, both idle
    fetch_s: float  # of the fetcher, for each message that it takes in: unpack, strategy, protocol
    message_s: float  # of the worker thread, for each message beside what user code takes
    critical_s: float  # of the worker thread, for each critical message
    state_bytes_per_s: float  # at which partial states are packed, moved, unpacked and combined
    packet_s: float = 0.00005  # of other threads at each end of a hop, for a packet on its way: encryption, TCP
    reply_s: float = 0.00006  # of the fetcher, for the reply of a lessee that comes while it takes in others
    send_s: float = 0.00003  # for each further message of several that are sent at once
    operator_s: float = 0.0005  # of an operator for a message with a row, a windowed aggregate
    closing_s: float = 0.0008  # of it for the critical message that closes a window, beyond one that does not
    wake_s: float = 0.0004  # by which a worker that emulates work sleeps too long
    idle_share: float = 0.03  # of a core, that a worker takes while it waits for the rows of a job
    cores: int = 2  # of the machine on which this was measured, which all of its workers share
    machine: str = ""

    @classmethod
    def measured(cls) -> RuntimeCosts:
        """Those that come with Dirigo."""
        return _decoded(resources.files(__package__).joinpath(_FILE).read_bytes(), _FILE)

    @classmethod
    def read(cls, path: Path) -> RuntimeCosts:
        try:
            return _decoded(path.read_bytes(), str(path))
        except OSError as error:
            raise CostsError(f"the costs in {path} cannot be read ({error.strerror}); dirigo costs writes them.") from error

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


def _decoded(text: bytes, name: str) -> RuntimeCosts:
    try:
        costs = msgspec.json.decode(text, type=RuntimeCosts)
    except msgspec.DecodeError as error:
        raise CostsError(f"{name} holds no costs: {error}; dirigo costs writes them.") from error
    for field in msgspec.structs.fields(RuntimeCosts):
        value = getattr(costs, field.name)
        if not isinstance(value, str) and value <= 0.0:
            raise CostsError(f"{name}: {field.name} is {value}, but everything costs something; run dirigo costs.")
    return costs
