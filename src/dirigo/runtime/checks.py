"""What the controller and the results log believe of what they are told."""

from __future__ import annotations

from typing import Final

from dirigo.runtime import control
from dirigo.runtime.errors import ControlError
from dirigo.runtime.keys import CLIENT, READER, WORKER, WRITER

_LOOKING = (control.GetStatus, control.GetJob, control.GetLog, control.ReadLog)
_WRITING = (control.GetPlaces, control.ReleaseBatch, control.IsCommitting)
_ALLOWED: Final[dict[str, tuple[type, ...]]] = {READER: _LOOKING, WRITER: _WRITING, WORKER: ()}  # a client may do all
_DOING: Final[dict[type, str]] = {
    control.GetStatus: "look at the cluster",
    control.GetJob: "look at a job",
    control.GetLog: "read results",
    control.ReadLog: "read results",
    control.Submit: "submit a job",
    control.CancelJob: "cancel a job",
    control.EndSources: "end the sources of a job",
    control.FailJob: "fail a job",
    control.Resize: "change the number of workers",
    control.StopCluster: "stop the cluster",
    control.GetPlaces: "bring rows to a job",
    control.ReleaseBatch: "bring rows to a job",
    control.IsCommitting: "bring rows to a job",
}


def check_role(role: str, request: control.Request | control.LogRequest) -> None:
    """Refuse what the keys of a role do not allow."""
    if role != CLIENT and not isinstance(request, _ALLOWED.get(role, ())):
        raise ControlError(f"a {role} may not {_DOING[type(request)]}; connect with the keys of a client.")
