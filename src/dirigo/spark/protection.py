"""Whether Spark protects what it sends over a network: its pickled tasks carry keys of a cluster, and the code of jobs."""

from __future__ import annotations

import logging
from typing import Any

from dirigo.spark.session import is_local, is_loopback_master

_log = logging.getLogger(__name__)
_AUTHENTICATION = "spark.authenticate"
_ENCRYPTION = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")  # one of them is enough


def unprotected(spark: Any) -> list[str]:
    """The settings that a session lacks, so that others in the network could read its tasks; none on one machine."""
    master = str(spark.conf.get("spark.master", ""))
    if is_local(master) or is_loopback_master(master):
        return []
    missing = [] if _is_on(spark, _AUTHENTICATION) else [_AUTHENTICATION]
    return missing if any(_is_on(spark, setting) for setting in _ENCRYPTION) else [*missing, _ENCRYPTION[0]]


def warn_if_unprotected(spark: Any) -> None:
    missing = unprotected(spark)
    if missing:
        _log.warning(
            "Spark sends its tasks, and with them the keys of this cluster, unprotected through the network; "
            "start its session with %s (docs/operating/security.md).",
            " and ".join(f"{setting}=true" for setting in missing),
        )


def _is_on(spark: Any, setting: str) -> bool:
    return str(spark.conf.get(setting, "false")).lower() == "true"
