"""The table of commands: what each is called, in which group ``dirigo --help`` shows it, and where its code is.

Other distributions add commands of their own by an entry point of the group ``dirigo.commands`` that names a tuple of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points

WRITE_AND_TEST = "Write and test"
RUN_AND_OPERATE = "Run and operate"
ENTRY_POINTS = "dirigo.commands"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One command of ``dirigo``. Its code is loaded when it is called, so that help and other commands answer at once."""

    name: str
    group: str
    summary: str  # the first line of its help
    code: str  # module:attribute, a function or a typer application


COMMANDS = (
    CommandEntry("graph", WRITE_AND_TEST, "Draw the dataflows of a Python file.", "dirigo.cli.graph:graph"),
    CommandEntry("run", WRITE_AND_TEST, "Run the dataflows of a Python file to their end.", "dirigo.cli.run:run"),
    CommandEntry("slo", WRITE_AND_TEST, "Find the latency that a flow can be held to.", "dirigo.cli.slo:app"),
    CommandEntry("cluster", RUN_AND_OPERATE, "Start, look at and stop a cluster.", "dirigo.cli.cluster:app"),
    CommandEntry("submit", RUN_AND_OPERATE, "Submit the dataflows of a Python file to a cluster.", "dirigo.cli.jobs:submit"),
    CommandEntry("jobs", RUN_AND_OPERATE, "List jobs, or tell all about one of them.", "dirigo.cli.jobs:jobs"),
    CommandEntry("cancel", RUN_AND_OPERATE, "Cancel a job.", "dirigo.cli.jobs:cancel"),
    CommandEntry("drain", RUN_AND_OPERATE, "End a job's sources, and let it finish what has come.", "dirigo.cli.jobs:drain"),
    CommandEntry("savepoint", RUN_AND_OPERATE, "Keep a snapshot of a job, for another job.", "dirigo.cli.jobs:savepoint"),
    CommandEntry("snapshots", RUN_AND_OPERATE, "List the snapshots of jobs.", "dirigo.cli.snapshots:snapshots"),
    CommandEntry("state", RUN_AND_OPERATE, "Show what an operator of a job keeps.", "dirigo.cli.state:state"),
    CommandEntry("top", RUN_AND_OPERATE, "Watch the workers and jobs of a cluster, live.", "dirigo.cli.top:top"),
)


def all_commands() -> tuple[CommandEntry, ...]:
    """Dirigo's own commands, and then those of other distributions that are installed."""
    added = [entry for point in sorted(entry_points(group=ENTRY_POINTS)) for entry in point.load()]
    return (*COMMANDS, *added)
