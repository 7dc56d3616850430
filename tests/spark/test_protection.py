"""A session on several machines that does not protect its tasks is warned of, in one sentence; others are not."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from dirigo.spark.protection import unprotected, warn_if_unprotected

AUTHENTICATED = {"spark.authenticate": "true"}
ENCRYPTED = {"spark.network.crypto.enabled": "true"}
OVER_TLS = {"spark.ssl.rpc.enabled": "true"}


def session(master: str, settings: dict[str, str]) -> Any:
    """As much of a session as is asked, which is the same for classic sessions and those of Spark Connect."""
    return SimpleNamespace(
        conf=SimpleNamespace(get=lambda name, default: ({"spark.master": master} | settings).get(name, default))
    )


@pytest.mark.parametrize("master", ["local", "local[4]", "local[4,4]", "spark://127.0.0.1:7077", "spark://localhost:7077"])
def test_on_one_machine_nothing_is_missing(master: str) -> None:
    assert unprotected(session(master, {})) == []


@pytest.mark.parametrize("master", ["spark://10.0.0.5:7077", "spark://a:7077,b:7077", "yarn", "k8s://https://host:443", ""])
@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, ["spark.authenticate", "spark.network.crypto.enabled"]),
        ({"spark.authenticate": "false"}, ["spark.authenticate", "spark.network.crypto.enabled"]),
        (AUTHENTICATED, ["spark.network.crypto.enabled"]),
        (ENCRYPTED, ["spark.authenticate"]),
        (AUTHENTICATED | ENCRYPTED, []),
        (AUTHENTICATED | OVER_TLS, []),
    ],
    ids=str,
)
def test_on_several_machines_all_of_it_is_needed(
    master: str, settings: dict[str, str], missing: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    spark = session(master, settings)
    assert unprotected(spark) == missing
    with caplog.at_level(logging.WARNING):
        warn_if_unprotected(spark)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == bool(missing)
    for warning in warnings:
        assert all(f"{setting}=true" in warning for setting in missing)
        assert "\n" not in warning
