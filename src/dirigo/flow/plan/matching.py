"""Whether a flow can go on from a savepoint: which of its operators goes on as which of those that the savepoint has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from dirigo.flow.errors import FlowError
from dirigo.flow.plan.description import OperatorDescription, PlanDescription


def matched(
    saved: PlanDescription,
    now: PlanDescription,
    dropped: Collection[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> dict[str, OperatorDescription]:
    """Operators of the savepoint, by the names of those that go on from them; all others begin with nothing.

    ``dropped``: names in the savepoint whose states are given up. ``renamed``: names in the savepoint -> names now. A
    ``FlowError`` names everything that does not fit.
    """
    renames = renamed or {}
    by_old = {each.name: each for each in saved.operators}
    by_new = {each.name: each for each in now.operators}
    problems = _wrong_options(by_old, by_new, dropped, renames)
    found: dict[str, OperatorDescription] = {}
    taken = set(renames.values())
    for old in saved.operators:
        if old.name in dropped:
            continue
        name = renames.get(old.name, old.name)
        new = by_new.get(name) if old.name in renames or name not in taken else None
        if new is None:
            if old.keeps_something:
                problems.append(f"{_told(old)} is not in it")
            continue
        problem = _difference(old, new)
        if problem is None:
            found[name] = old
        elif old.keeps_something:
            problems.append(f"{_told(old)} {problem}")
    if problems:
        raise FlowError(
            f"{'; '.join(problems)}. Operators are matched by their names: say what was renamed (renamed={{'old': 'new'}}, "
            "--renamed OLD=NEW), and give up the state of what is not to go on (dropped=['name'], --dropped NAME)."
        )
    return found


def _wrong_options(
    by_old: Mapping[str, object], by_new: Mapping[str, object], dropped: Collection[str], renamed: Mapping[str, str]
) -> list[str]:
    there = ", ".join(by_old) or "none"
    problems = [
        f"the savepoint has no operator '{name}' (it has {there})" for name in (*dropped, *renamed) if name not in by_old
    ]
    problems += [
        f"there is no operator '{name}' that '{old}' could be now" for old, name in renamed.items() if name not in by_new
    ]
    problems += [f"'{name}' is both dropped and renamed" for name in dropped if name in renamed]
    twice = [name for name, count in Counter(renamed.values()).items() if count > 1]
    return problems + [f"several operators are renamed to '{name}'" for name in twice]


def _told(old: OperatorDescription) -> str:
    return f"operator '{old.name}' ({old.described})"


def _difference(old: OperatorDescription, new: OperatorDescription) -> str | None:
    """What keeps one from going on as the other."""
    if old.is_source != new.is_source or old.kind != new.kind:
        return f"is of kind '{new.kind}' in it"
    if old.keys != new.keys:
        return f"has the keys ({', '.join(new.keys)}) in it, and had ({', '.join(old.keys)})"
    if old.state != new.state:
        return f"keeps something else in it: [{new.state or 'nothing'}], and kept [{old.state or 'nothing'}]"
    if old.partitions != new.partitions:
        if old.is_source:
            return f"is read in {new.partitions} splits in it, and was in {old.partitions}; read it in as many as before"
        if old.state and not new.can_be_divided:
            return (
                f"has {new.partitions} partitions in it, and had {old.partitions}, but what it keeps per partition cannot "
                "be divided anew"
            )
    return None
