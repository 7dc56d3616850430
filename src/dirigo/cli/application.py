"""The ``dirigo`` command: all commands of the table, in their groups, each loaded when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from dirigo import __version__
from dirigo.cli.commands import CommandEntry, all_commands

_ENTRIES = {entry.name: entry for entry in all_commands()}


class _LoadedWhenCalled(TyperGroup):
    """Shows commands by their entries alone; only the one that is called gets its code."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(_ENTRIES)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, shown, rest = super().resolve_command(ctx, args)
        return (name, shown, rest) if shown is None else (name, _loaded(_ENTRIES[shown.name or ""]), rest)


def _loaded(entry: CommandEntry) -> Any:
    module, _, attribute = entry.code.partition(":")
    code = getattr(import_module(module), attribute)
    if not isinstance(code, typer.Typer):
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(entry.name)(code)
        code = alone
    command = typer.main.get_command(code)
    command.name = entry.name
    return command


def _shown(entry: CommandEntry) -> None:
    def not_loaded() -> None:
        raise AssertionError(f"the code of '{entry.name}' is loaded before it is called")

    app.command(entry.name, help=entry.summary, rich_help_panel=entry.group)(not_loaded)


app = typer.Typer(
    name="dirigo",
    cls=_LoadedWhenCalled,
    help="Dirigo: stateful stream functions that scale one message at a time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _entry in _ENTRIES.values():
    _shown(_entry)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dirigo {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    """Dirigo: stateful stream functions that scale one message at a time."""
