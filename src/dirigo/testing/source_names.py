"""Which source of which flow is meant: by its name alone where no other flow has one like it, otherwise as "flow/source"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dirigo.errors import DirigoError
from dirigo.flow.api.dataflow import Dataflow, SourceNode
from dirigo.flow.sources.source import Source
from dirigo.testing.scripted import ScriptedSource


class SourceNames:
    """The sources of some flows, as those who write tests name them."""

    def __init__(self, flows: Sequence[Dataflow]) -> None:
        self._flows = flows
        self._sources: dict[tuple[str, str], Source] = {  # by flow and name
            (flow.name, node.name): node.source for flow in flows for node in flow.nodes if isinstance(node, SourceNode)
        }

    def stand_ins(
        self, rows: Mapping[str, Iterable[Any]] | Iterable[Any] | None, open_sources: str | Iterable[str]
    ) -> dict[tuple[str, str], ScriptedSource]:
        """What is read instead of the sources that rows were given for, and of those that are open."""
        open_sources = [open_sources] if isinstance(open_sources, str) else list(open_sources)
        scripts: dict[str, Iterable[Any]] = {}
        if isinstance(rows, Mapping):
            scripts = dict(rows)
        elif rows is not None:
            if len(self._sources) != 1:
                raise DirigoError(f"say which rows are for which source: rows={{...}} with the names {self._told()}.")
            scripts = {"/".join(next(iter(self._sources))): rows}
        scripted = {self.of(name): script for name, script in scripts.items()}
        stand_ins = {key: ScriptedSource(self._sources[key], script) for key, script in scripted.items()}
        opened = [self.of(name) for name in open_sources]
        return stand_ins | {key: ScriptedSource(self._sources[key], ends=False) for key in opened}

    def of(self, name: str) -> tuple[str, str]:
        """The flow and the name of the source that is meant."""
        flow, _, source = name.rpartition("/")
        found = [key for key in self._sources if key[1] == source and flow in ("", key[0])]
        if len(found) > 1:
            raise DirigoError(f"several flows have a source '{name}'; name one of {', '.join(map('/'.join, found))}.")
        if not found:
            if len(self._flows) == 1:
                raise DirigoError(f"the flow '{self._flows[0].name}' has no source '{name}'; it has {self._told()}.")
            raise DirigoError(f"no flow has a source '{name}'; there are {self._told()}.")
        return found[0]

    def _told(self) -> str:
        return ", ".join(key[1] if len(self._flows) == 1 else "/".join(key) for key in self._sources)
