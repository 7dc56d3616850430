"""All commands, put together."""

from __future__ import annotations

import typer

from dirigo import __version__
from dirigo.cli import bench, calibrate, cluster, demo, docs, experiment, graph, jobs, nexmark, run, slo, top, verify

app = typer.Typer(
    name="dirigo",
    help="Dirigo: stateful stream functions that scale one message at a time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("verify")(verify.verify)
app.command("bench")(bench.bench)
app.command("calibrate")(calibrate.calibrate)
app.command("graph")(graph.graph)
app.command("docs")(docs.docs)
app.command("demo")(demo.demo)
app.command("experiment")(experiment.experiment)
app.command("nexmark")(nexmark.nexmark)
app.command("run")(run.run)
app.add_typer(cluster.app, name="cluster")
app.command("submit")(jobs.submit)
app.command("jobs")(jobs.jobs)
app.command("cancel")(jobs.cancel)
app.command("drain")(jobs.drain)
app.command("top")(top.top)
app.add_typer(slo.app, name="slo")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dirigo {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    """Dirigo: stateful stream functions that scale one message at a time."""
