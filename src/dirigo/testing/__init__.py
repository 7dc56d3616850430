"""The test kit: run any flow without a cluster, in virtual time, as it is or under chaos.

from dirigo.testing import Simulation, assert_parallel_equals_sequential, check_recovery, check_sink, check_source, run
"""

from dirigo.testing.crashes.recovery_checks import Recoveries, check_recovery
from dirigo.testing.equality import assert_parallel_equals_sequential
from dirigo.testing.scripted import Abort, Aborted, Pause
from dirigo.testing.simulation import Simulation, run
from dirigo.testing.sink_checks import check_sink
from dirigo.testing.source_checks import check_source

__all__ = [
    "Abort",
    "Aborted",
    "Pause",
    "Recoveries",
    "Simulation",
    "assert_parallel_equals_sequential",
    "check_recovery",
    "check_sink",
    "check_source",
    "run",
]
