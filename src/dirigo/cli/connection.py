"""How commands get to a cluster that runs in the background, and what they say if there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.markup import escape

from dirigo.cli.display.output import fail
from dirigo.errors import DirigoError
from dirigo.runtime.client.client import Client
from dirigo.spark.connection import Service
from dirigo.spark.service import file as service_file
from dirigo.spark.service.file import RunningService

DEFAULT_CLUSTER = service_file.DEFAULT_NAME

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
        return service_file.find(name, others=f"or name one that runs with {option}")


@contextmanager
def connected(name: str, option: str = "--cluster", answer_s: float = 10.0) -> Iterator[Client]:
    """A client of the cluster of this name; what it refuses ends the command with one line."""
    service = running(name, option)
    with one_line_errors(), Client(service_file.access_to(service), answer_s=answer_s) as client:
        yield client


@contextmanager
def connected_service(name: str) -> Iterator[Service]:
    """The same for what takes more than requests: a job whose rows come from this process, or come back to it."""
    service = running(name)
    with one_line_errors(), Service(service_file.access_to(service), name) as connection:
        yield connection


def named(name: str, option: str = "--cluster") -> str:
    """What to add to a command that we tell of, to reach this cluster."""
    return service_file.named(name, option)
