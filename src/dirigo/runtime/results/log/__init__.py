"""The results of a job on disk: a log of Arrow record batches that readers pull by offset, as often as they like."""

from dirigo.runtime.results.log.errors import LogError
from dirigo.runtime.results.log.store import ResultLog
from dirigo.runtime.results.log.stored import StoredLog

__all__ = ["LogError", "ResultLog", "StoredLog"]
