"""Finding the dataflows in a user's Python file."""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import CodeType, ModuleType

from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.errors import FlowError
from dirigo.flow.plan.picture import one_line


def load_flows(path: Path) -> list[Dataflow]:
    """The dataflows that a file assigns to names at its top level, in this order. The file's code runs, as in an import."""
    module = _run(path, _compiled(path))
    flows: list[Dataflow] = []
    for value in vars(module).values():
        if isinstance(value, Dataflow) and value not in flows:  # one flow may have two names
            flows.append(value)
    if not flows:
        raise FlowError(f"there is no dataflow in {path}; assign it to a name at the top level: flow = Dataflow(...).")
    return flows


def _compiled(path: Path) -> CodeType:
    """The file's code, always from its text: a compiled copy beside it may be stale, and it is not our folder."""
    if path.is_dir():
        raise FlowError(f"{path} is a folder; name a Python file in it.")
    if not path.exists():
        raise FlowError(f"there is no file {path}; check its name.")
    if path.suffix != ".py":
        raise FlowError(f"{path} is not a Python file; its name must end in .py.")
    try:
        return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise FlowError(f"{path} cannot be read: {error.strerror}.") from error
    except SyntaxError as error:
        raise FlowError(f"{path}, line {error.lineno}: {type(error).__name__}: {one_line(error.msg)}.") from error
    except ValueError as error:
        raise FlowError(f"{path} is not a text of Python: {one_line(str(error))}.") from error


def _run(path: Path, code: CodeType) -> ModuleType:
    # Not "__main__", so that a part for scripts does not run; and registered, since dataclasses and others look it up.
    place = path.resolve()
    readable = re.sub(r"\W", "_", path.stem)
    module = ModuleType(f"_dirigo_flows_{readable}_{hashlib.sha256(bytes(place)).hexdigest()[:8]}")
    module.__file__ = str(place)
    sys.modules[module.__name__] = module
    try:
        with importable(place.parent):
            exec(code, vars(module))
    except FlowError:
        del sys.modules[module.__name__]
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything
        del sys.modules[module.__name__]
        lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == code.co_filename]
        what = one_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        end = "" if what.endswith((".", "!", "?")) else "."
        raise FlowError(f"{path}, line {lines[-1]}: {what}{end}") from error
    return module


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Files in this folder can be imported, as they can by a script that is run."""
    importlib.invalidate_caches()  # a file may be younger than what Python remembers of its folder
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:  # the file may have changed the path itself
            sys.path.remove(str(folder))
