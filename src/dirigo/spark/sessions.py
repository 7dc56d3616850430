"""Which services the format "dirigo" of a Spark session can reach, and how a session learns of the format.

A session has one format of this name. So this process remembers what each of its sessions was told, and tells it anew with
whatever is added.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from dirigo.runtime.control import Access
from dirigo.runtime.errors import ControlError
from dirigo.runtime.transport.keys import READER, WRITER
from dirigo.spark.service import file as service_file
from dirigo.spark.session import use_this_python

SERVICE: Final = "service"


@dataclass(frozen=True)
class TaskAccess:
    """The access of those who read from a service, and of those who write to it: Spark's tasks get no other keys."""

    reading: object
    writing: object = None

    @classmethod
    def of(cls, access: Access) -> TaskAccess:
        """What can be made of the access to a service. Whoever may only read cannot let others write."""
        reading = access.lowered(READER)
        with suppress(ControlError):
            return cls(reading, access.lowered(WRITER))
        return cls(reading)


@dataclass(frozen=True)
class Reach:
    """What a session can reach. It travels to wherever Spark plans queries, and holds keys, so it is never shown."""

    runs: Mapping[str, TaskAccess] = field(default_factory=dict)  # by the id of the run, which is no secret
    defaults: tuple[str, ...] = ()  # runs of which the last one is meant if none is named
    names: Mapping[str, TaskAccess] = field(default_factory=dict)  # services that ran when the session was told
    home: Path | None = None  # where the files of services are, for those who can see them

    def access_for(self, options: Mapping[str, str]) -> TaskAccess:
        """The service that the options of a query name; without a name, that of the session."""
        name = options.get(SERVICE)
        if name is None and self.defaults:
            return self.runs[self.defaults[-1]]
        if name is None and self.home is None:
            return TaskAccess(None)
        name = name or service_file.DEFAULT_NAME
        if name in self.runs:
            return self.runs[name]
        if self.home is not None and not service_file.clusters_under(self.home).is_dir() and name in self.names:
            return self.names[name]  # the query is planned on another machine
        others = f'or name one that runs with .option("{SERVICE}", NAME)'
        return TaskAccess.of(service_file.access_to(service_file.find(name, others=others, place=self.home)))

    def __repr__(self) -> str:
        return "Reach(...)"


_lock = threading.Lock()
_reaches: WeakKeyDictionary[Any, Reach] = WeakKeyDictionary()


def register(spark: Any) -> None:
    """Make the format "dirigo" known to a Spark session, classic or Spark Connect.

    Then ``spark.read.format("dirigo").option("service", NAME)`` reads from the service that was started with ``dirigo
    cluster start --name NAME``, and ``df.write`` and ``df.writeStream`` write to it. Without the option, the service is
    the one of the session, if it belongs to a ``dg.Cluster``, and otherwise "dirigo". Spark reads in Python: of a session on
    this machine that is the Python which runs this, unless PYSPARK_PYTHON names another one.
    """
    if not hasattr(spark, "dataSource"):
        raise ControlError(f"register takes a Spark session, not {spark!r}.")
    register_with(spark, None, is_default=False)


def register_with(spark: Any, access: Access | None, *, is_default: bool) -> None:
    """The same, with access to one more service. As the default it is the one that is meant when none is named."""
    from dirigo.spark.data_source import dirigo_format

    use_this_python(spark)
    names = {}
    for name in service_file.living():
        with suppress(ControlError):
            names[name] = TaskAccess.of(service_file.access_to(service_file.find(name)))
    with _lock:
        reach = replace(_reaches.get(spark) or Reach(), names=names, home=service_file.home())
        if access is not None:
            reach = replace(reach, runs={**reach.runs, access.run: TaskAccess.of(access)})
            if is_default:
                others = tuple(run for run in reach.defaults if run != access.run)
                reach = replace(reach, defaults=(*others, access.run))
        _reaches[spark] = reach
        spark.dataSource.register(dirigo_format(reach))


def forget(access: Access) -> None:
    """The service is gone, or is none of this process's any more. A session of several is told which one is meant now."""
    from dirigo.spark.data_source import dirigo_format

    gone = access.run
    with _lock:
        for spark, reach in list(_reaches.items()):
            if gone in reach.runs:
                runs = {run: each for run, each in reach.runs.items() if run != gone}
                defaults = tuple(run for run in reach.defaults if run != gone)
                _reaches[spark] = replace(reach, runs=runs, defaults=defaults)
                if defaults:
                    with suppress(Exception):  # the session may have ended
                        spark.dataSource.register(dirigo_format(_reaches[spark]))
