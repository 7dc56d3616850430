"""The mailbox's tables as a page of documentation. The page is generated, so that picture and code cannot drift apart."""

from __future__ import annotations

from dirigo.kernel.mailbox import ADMIT, TRANSITIONS, MailboxState, MessageKind, Role

_HEAD = """\
# The mailbox

<!-- Generated from the tables in src/dirigo/kernel/mailbox.py by `make docs`. Do not edit: a test compares the two. -->

Every instance of an actor has a mailbox. Its state decides which messages may run. The rows below are the ones that the
code looks up; an event without a row raises an error and changes nothing.
"""


def mailbox_page() -> str:
    """The whole page, in Markdown."""
    parts = [_HEAD]
    for role in Role:
        parts.append(f"## The {role.value}\n")
        parts.append(_picture(role))
        parts.append(_transitions(role))
        parts.append(f"What happens to a message that reaches the {role.value}:\n")
        parts.append(_admissions(role))
    return "\n".join(parts)


def _picture(role: Role) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {MailboxState.RUNNABLE.value}"]
    rows = [row for row in TRANSITIONS if row.role is role]
    lines += [f"    {row.source.value} --> {row.target.value}: {row.event.value}" for row in rows]
    return "\n".join([*lines, "```", ""])


def _transitions(role: Role) -> str:
    lines = ["| in | when | becomes | and does |", "| --- | --- | --- | --- |"]
    rows = [row for row in TRANSITIONS if row.role is role]
    lines += [f"| {row.source.value} | {row.event.value} | {row.target.value} | {row.effect} |" for row in rows]
    return "\n".join([*lines, ""])


def _admissions(role: Role) -> str:
    states = [state for state in MailboxState if any((role, state, kind) in ADMIT for kind in MessageKind)]
    kinds = [kind for kind in MessageKind if any((role, state, kind) in ADMIT for state in states)]
    lines = [
        "| a message that is | " + " | ".join(state.value for state in states) + " |",
        "| --- |" + " --- |" * len(states),
    ]
    for kind in kinds:
        cells = []
        for state in states:
            row = ADMIT.get((role, state, kind))
            cells.append("cannot come" if row is None else row.verdict.value)
        lines.append(f"| {kind.value} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])
