"""Who is who: addresses of actors and ids of workers.

An *actor* is one function of a job's graph: (job, operator, partition). An *instance* is an actor at one worker, so it is
named by an address and a worker id. Addresses are plain strings because a string caches its hash and needs no decoding.
"""

from __future__ import annotations

Address = str
WorkerId = int

_SEPARATOR = "/"


def actor_address(job: str, operator: str, partition: int = 0) -> Address:
    """The address of one actor, for example ``actor_address("bids", "max", 3) == "bids/max/3"``."""
    for part in (job, operator):
        if not part or _SEPARATOR in part:
            raise ValueError(f"a job or operator name must be non-empty and without {_SEPARATOR!r}, but got {part!r}")
    return f"{job}{_SEPARATOR}{operator}{_SEPARATOR}{partition}"


def job_of(address: Address) -> str:
    """The job that an actor belongs to."""
    return address.partition(_SEPARATOR)[0]


def operator_of(address: Address) -> str:
    """The operator of its job that an actor is a part of."""
    return address.split(_SEPARATOR)[1]


def instance_name(address: Address, worker: WorkerId) -> str:
    """How stories and errors name an instance."""
    return f"{address}@w{worker}"
