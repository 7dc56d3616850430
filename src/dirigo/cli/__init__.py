"""The command line. Each command has its own file; ``application`` puts them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dirigo.cli.application import app as app
else:

    def __getattr__(name: str) -> Any:
        """Loading all commands takes a while, during which Ctrl-C must already be heard."""
        if name == "app":
            from dirigo.cli.application import app

            return app
        raise AttributeError(f"module 'dirigo.cli' has no attribute '{name}'")


def main() -> None:
    """The ``dirigo`` command."""
    import signal

    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until signals are watched: there is nothing to end in order yet
    from dirigo.cli.signals import run_main

    run_main(_run)


def _run() -> None:
    from dirigo.cli.application import app
    from dirigo.cli.display.output import whole_output

    with whole_output():
        app()
