"""The file by which commands find a cluster that runs in the background, and how they see whether it still lives.

Each cluster has a folder of its own, ``$DIRIGO_HOME/clusters/NAME``. The file holds the keys of a client, so only its owner
may read it; it is replaced as a whole, never changed in place. Beside it lies one with the keys of a reader, for those who
may only look: a copy of it, in the same place under a home of their own, is all that they need.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import msgspec

from dirigo.runtime.control import Access
from dirigo.runtime.errors import ControlError
from dirigo.runtime.transport.keys import READER

DEFAULT_NAME = "dirigo"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OWNER_ONLY = 0o700
_CLIENTS_FILE, _READERS_FILE = "access.json", "reader.json"


class RunningService(msgspec.Struct, frozen=True):
    """A cluster in the background, as its file tells."""

    name: str
    machine: str
    pid: int
    started: str  # when the process began, as the system tells it: another one may get the same number later
    began_s: float
    state: str = "starting"  # ready, failed
    problem: str | None = None
    access: Access | None = None

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine; a home folder may be shared by several."""
        return self.machine == socket.gethostname()

    def lives(self) -> bool:
        """Whether its process is there. Of one on another machine this cannot be told, so it counts."""
        return not self.is_here or (self.started != "" and started_of(self.pid) == self.started)


def home() -> Path:
    """Where Dirigo keeps what outlives a command."""
    return Path(os.environ.get("DIRIGO_HOME") or Path.home() / ".dirigo").expanduser().absolute()


def clusters_under(place: Path | None) -> Path:
    """The folder of all clusters; ``place``: instead of ``home()``."""
    return (place or home()) / "clusters"


def folder_of(name: str, place: Path | None = None) -> Path:
    """The folder of a cluster; refuses a name that is none."""
    if not _NAME.fullmatch(name):
        raise ControlError(f"'{name}' is no name for a cluster; take letters, digits and . _ - only, at most 64.")
    return clusters_under(place) / name


def make_folder(name: str) -> Path:
    """The folder of a cluster, for its owner alone."""
    folder = folder_of(name)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=_OWNER_ONLY)
        folder.chmod(_OWNER_ONLY)
    except OSError as error:
        raise ControlError(
            f"cannot make the folder {folder}: {error.strerror}; set DIRIGO_HOME to another place."
        ) from error
    return folder


def file_of(name: str, place: Path | None = None) -> Path:
    return folder_of(name, place) / _CLIENTS_FILE


def readers_file_of(name: str, place: Path | None = None) -> Path:
    """The same with the keys of a reader."""
    return folder_of(name, place) / _READERS_FILE


def log_file_of(name: str, place: Path | None = None) -> Path:
    return folder_of(name, place) / "cluster.log"


def write(service: RunningService) -> None:
    """Replace the files; nobody ever sees half of one, and nobody else may read them."""
    if service.access is not None:
        access = service.access.lowered(READER)
        _write(readers_file_of(service.name), msgspec.structs.replace(service, access=access))
    _write(file_of(service.name), service)


def _write(file: Path, service: RunningService) -> None:
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(service)) + b"\n")
    temporary.replace(file)


def read(name: str, place: Path | None = None) -> RunningService | None:
    """What the file of a cluster says, that of readers if there is no other; None without one."""
    file = file_of(name, place)
    if not file.exists() and readers_file_of(name, place).exists():
        file = readers_file_of(name, place)
    try:
        return msgspec.json.decode(file.read_bytes(), type=RunningService)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ControlError(f"cannot read {file}: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise ControlError(f"{file} is damaged; delete it, and start the cluster anew.") from error


def remove(name: str) -> None:
    for file in (file_of(name), readers_file_of(name)):
        file.unlink(missing_ok=True)


def find(name: str, *, others: str = "or take one that runs", place: Path | None = None) -> RunningService:
    """The cluster of this name, which lives; or a sentence that says what to do, such as to take one of the others."""
    service = read(name, place)
    if service is None or not service.lives() or service.state == "failed":
        raise ControlError(_why_not_there(name, service, others, place))
    return service


def access_to(service: RunningService) -> Access:
    """What lets requests in. A cluster that starts takes none yet."""
    if service.access is None:
        raise ControlError(f"cluster '{service.name}' is starting; try again in a moment.")
    return service.access


def _why_not_there(name: str, service: RunningService | None, others: str, place: Path | None) -> str:
    sentence = f"no cluster '{name}' runs; start one with 'dirigo cluster start{named(name, '--name')}'"
    if service is not None and service.state == "failed" and service.problem:
        sentence += f" (the last one ended: {service.problem.rstrip('.')}; see {log_file_of(name, place)})"
    elif service is not None:
        sentence += f" (process {service.pid} of the last one is gone: see {log_file_of(name, place)})"
    names = [other for other in living(place) if other != name]
    return f"{sentence}, {others}: {', '.join(names)}." if names else f"{sentence}."


def named(name: str, option: str) -> str:
    """What to add to a command that we tell of, to reach this cluster."""
    return "" if name == DEFAULT_NAME else f" {option} {name}"


def living(place: Path | None = None) -> list[str]:
    """The names of all clusters whose process is there."""
    found = []
    files = [file for kind in (_CLIENTS_FILE, _READERS_FILE) for file in clusters_under(place).glob(f"*/{kind}")]
    for name in sorted({file.parent.name for file in files}):
        with suppress(ControlError):
            service = read(name, place)
            if service is not None and service.lives() and service.state != "failed":
                found.append(service.name)
    return found


def started_of(pid: int) -> str | None:
    """When a process began, in the system's own words; None if there is no such process."""
    with suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)  # a process that we started ourselves stays in the list until somebody asks
    fields = _fields_of(pid)
    if fields is not None:
        return None if fields[0] in ("Z", "X") else fields[19]
    if Path("/proc/self/stat").exists():
        return None
    told = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return told.stdout.strip() or None


def members_of(session: int) -> list[int]:
    """The processes of a session, the one that leads it included."""
    if not Path("/proc/self/stat").exists():
        return [session] if started_of(session) else []
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _fields_of(int(entry.name))
            if fields is not None and fields[3] == str(session) and fields[0] not in ("Z", "X"):
                found.append(int(entry.name))
    return found


def _fields_of(pid: int) -> list[str] | None:
    """What Linux tells of a process, from its state on; its name before that may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
