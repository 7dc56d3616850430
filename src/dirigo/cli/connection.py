"""How commands get to a cluster that runs in the background, and what they say if there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.markup import escape

from dirigo.cli.display.output import fail
from dirigo.errors import DirigoError
from dirigo.runtime.client.client import Client
from dirigo.spark.service import file as service_file
from dirigo.spark.service.file import RunningService

DEFAULT_CLUSTER = "dirigo"

ClusterName = typer.Option(DEFAULT_CLUSTER, "--cluster", metavar="NAME", help="The cluster, if it has a name of its own.")


@contextmanager
def one_line_errors() -> Iterator[None]:
    """What cannot be done ends the command with one line."""
    try:
        yield
    except DirigoError as error:
        fail(escape(" ".join(str(error).split())))


def running(name: str, option: str = "--cluster") -> RunningService:
    """The cluster of this name, which lives; or the end of the command."""
    with one_line_errors():
        service = service_file.read(name)
        others = [other for other in service_file.living() if other != name]
    if service is None or not service.lives() or service.state == "failed":
        sentence = f"no cluster '{name}' runs; start one with 'dirigo cluster start{named(name, '--name')}'"
        if service is not None and service.state == "failed" and service.problem:
            sentence += f" (the last one ended: {service.problem.rstrip('.')}; see {service_file.log_file_of(name)})"
        elif service is not None:
            sentence += f" (process {service.pid} of the last one is gone: see {service_file.log_file_of(name)})"
        if others:
            sentence += f", or name one that runs with {option}: {', '.join(others)}"
        fail(escape(f"{sentence}."))
    return service


@contextmanager
def connected(name: str, answer_s: float = 10.0) -> Iterator[Client]:
    """A client of the cluster of this name; what it refuses ends the command with one line."""
    service = running(name)
    if service.access is None:
        fail(escape(f"cluster '{name}' is starting; try again in a moment."))
    with one_line_errors(), Client(service.access, answer_s=answer_s) as client:
        yield client


def named(name: str, option: str = "--cluster") -> str:
    """What to add to a command that we tell of, to reach this cluster."""
    return "" if name == DEFAULT_CLUSTER else f" {option} {name}"
