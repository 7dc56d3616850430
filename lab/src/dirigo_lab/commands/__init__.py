"""The commands that the laboratory adds to ``dirigo``, each in a file of its own."""

from dirigo.cli.commands import CommandEntry

_GROUP = "Measure and verify"

COMMANDS = (
    CommandEntry("demo", _GROUP, "See two tenants share a pool on Spark.", "dirigo_lab.commands.demo:demo"),
    CommandEntry("nexmark", _GROUP, "Run Nexmark's queries over generated events.", "dirigo_lab.commands.nexmark:nexmark"),
    CommandEntry("bench", _GROUP, "Measure the kernel, flows and the service.", "dirigo_lab.commands.bench:bench"),
    CommandEntry(
        "experiment", _GROUP, "Repeat the paper's experiments, and our own.", "dirigo_lab.commands.experiment:experiment"
    ),
    CommandEntry("costs", _GROUP, "Measure what the runtime costs, for simulations.", "dirigo_lab.commands.costs:costs"),
    CommandEntry("verify", _GROUP, "Explore the protocol, and hunt its mutants.", "dirigo_lab.commands.verify:verify"),
    CommandEntry("docs", _GROUP, "Write the pages that are generated from code.", "dirigo_lab.commands.docs:docs"),
)
