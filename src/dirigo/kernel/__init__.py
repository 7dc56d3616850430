"""The dual-mode actor protocol and the worker's message path, as a pure state machine.

Calls in, messages out: a host calls ``Worker.receive``, ``next``, ``apply`` and ``finish``, and takes what is to be sent
from ``Worker.outgoing``. There is no I/O, no clock, no randomness, no thread. The simulator and the runtime are two hosts of
the very same objects, so what is explored is what runs. Start reading at ``mailbox`` (the states), then ``lessor`` and
``lessee``.
"""

from dirigo.kernel.interface.address import Address, WorkerId, actor_address, instance_name, job_of, operator_of
from dirigo.kernel.interface.errand import Errand, ErrandKind
from dirigo.kernel.interface.errors import GraphError, PolicyError, ProtocolError
from dirigo.kernel.interface.function import LESSEES_MAX, Behaviour, Context, Directory, FunctionSpec, States
from dirigo.kernel.interface.hooks import NO_EXTRAS, Chance, Hooks, Observer, SchedulingContext, StrategyExtras
from dirigo.kernel.interface.job_properties import NO_OBJECTIVE, JobProperties, Objective
from dirigo.kernel.interface.kept import Kept
from dirigo.kernel.interface.message import (
    CriticalOutput,
    CriticalRun,
    Data,
    Granularity,
    Lane,
    Message,
    Output,
    RunnableMessage,
    Trail,
)
from dirigo.kernel.mailbox import MailboxState, Role
from dirigo.kernel.source import SourceActor
from dirigo.kernel.worker import Worker

__all__ = [
    "LESSEES_MAX",
    "NO_EXTRAS",
    "NO_OBJECTIVE",
    "Address",
    "Behaviour",
    "Chance",
    "Context",
    "CriticalOutput",
    "CriticalRun",
    "Data",
    "Directory",
    "Errand",
    "ErrandKind",
    "FunctionSpec",
    "Granularity",
    "GraphError",
    "Hooks",
    "JobProperties",
    "Kept",
    "Lane",
    "MailboxState",
    "Message",
    "Objective",
    "Observer",
    "Output",
    "PolicyError",
    "ProtocolError",
    "Role",
    "RunnableMessage",
    "SchedulingContext",
    "SourceActor",
    "States",
    "StrategyExtras",
    "Trail",
    "Worker",
    "WorkerId",
    "actor_address",
    "instance_name",
    "job_of",
    "operator_of",
]
