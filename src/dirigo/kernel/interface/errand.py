"""What has to be done with the states of an instance while no message of it runs: it may run user code.

States are taken, combined and copied when protocol messages arrive, on whatever thread takes those in. A host whose user
code has a thread of its own takes such an errand over (``Worker.defer``), does its work there, and says when it is done.
Meanwhile nothing else can happen to the instance: it is blocked, or alone with nothing left to run.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dirigo.kernel.instance import Instance


class ErrandKind(Enum):
    """What is done, in words that follow "failed while"."""

    TAKE = "taking its states for a barrier"
    MERGE = "combining its states for a barrier"
    VIEW = "copying its states for those who read them"
    SIZE = "measuring its states"


class Errand(NamedTuple):
    """One such thing."""

    instance: Instance
    kind: ErrandKind
    work: Callable[[], Any]  # touches the states and nothing else
    done: Callable[[Any], None]  # takes what the work has returned; of the kernel, so it runs no user code

    def finish(self, result: Any) -> None:
        """The work was done elsewhere: go on with the protocol."""
        self.done(result)
        self.instance.settle()
        self.instance.host.do_requests()
