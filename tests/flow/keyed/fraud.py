"""The fraud detector of the examples, and the same in plain Python."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_FILE = Path(__file__).parents[3] / "examples/fraud_alerts.py"


def example() -> ModuleType:
    """The example as a module."""
    if "fraud_alerts" not in sys.modules:
        spec = importlib.util.spec_from_file_location("fraud_alerts", _FILE)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["fraud_alerts"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["fraud_alerts"]


def alerts_in_plain_python(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By looking at the last three payments of each user, in the order of the rows."""
    limit, within_ms = example().LIMIT, example().MINUTE_MS
    paid: dict[str, list[tuple[int, int]]] = {}
    alerts = []
    for row in rows:
        mine = paid.setdefault(row["user"], [])
        mine.append((row["at"], row["amount"]))
        last = mine[-3:]
        total = sum(amount for _, amount in last)
        if len(last) == 3 and last[2][0] - last[0][0] < within_ms and total > limit:
            alerts.append({"user": row["user"], "at": row["at"], "total": total})
    return alerts
