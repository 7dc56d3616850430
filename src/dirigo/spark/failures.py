"""Makes one sentence out of what Spark says when a task or a job fails, and knows which failures will happen again."""

from __future__ import annotations

import re
from typing import NamedTuple

_LENGTH_MOST = 300
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_PYTHON_ERROR = re.compile(r"^(?:[\w]+\.)*\w*(?:Error|Exception|Interrupt|Exit|Failed|Warning)\b.*$", re.MULTILINE)
_FROM_JAVA = re.compile(r"^\s+at [\w.$]+\(|^\s*\.\.\. \d+ more|^Driver stacktrace:|^JVM stacktrace:", re.MULTILINE)


class Failure(NamedTuple):
    """Why a worker ended although nobody wanted it to."""

    sentence: str
    is_final: bool = False  # it would fail in the same way again
    is_spark_gone: bool = False  # Spark itself does not answer, or was stopped


def understand(text: str) -> Failure:
    """What a Python traceback or the message of a Spark error means for the one who started the workers."""
    if missing := _MISSING_MODULE.search(text):
        module = missing.group(1)
        package = module.partition(".")[0]
        return Failure(
            f"The Python of Spark's executors cannot import {module!r}: install {package} there, the same version as here.",
            is_final=True,
        )
    if "PYTHON_VERSION_MISMATCH" in text:
        return Failure(
            "Spark's executors run another version of Python than this process: let PYSPARK_PYTHON name the same one.",
            is_final=True,
        )
    if "Cannot run program" in text:
        return Failure(
            "Spark's executors could not start Python: let PYSPARK_PYTHON name a Python that exists on them.", is_final=True
        )
    if "SPARK_JOB_CANCELLED" in text or "OPERATION_CANCELED" in text or "was cancelled" in text:
        return Failure("Its Spark job was cancelled.")
    if "worker exited unexpectedly" in text or "EOFException" in text:
        return Failure("Its Python process died again and again: it was killed, perhaps for want of memory, or crashed.")
    if "ExecutorLostFailure" in text or "ExecutorDeadException" in text:
        return Failure("The Spark executor under it was lost again and again.")
    if "stopped SparkContext" in text or "SparkContext was shut down" in text or "INVALID_HANDLE.SESSION" in text:
        return Failure("The Spark session under it was stopped.", is_final=True, is_spark_gone=True)
    if "Connection refused" in text or "StatusCode.UNAVAILABLE" in text or "Error while sending or receiving" in text:
        return Failure("Spark does not answer any more: its process was ended, or cannot be reached.", is_spark_gone=True)
    return Failure(_shortened(text))


def is_spark_gone(error: BaseException) -> bool:
    """Whether an error says that Spark itself is gone, and nothing about what it was asked to do."""
    is_broken = isinstance(error, OSError | EOFError) or type(error).__name__ == "Py4JNetworkError"
    return is_broken or understand(str(error)).is_spark_gone


def _shortened(text: str) -> str:
    """The line that says most: the last Python error before the Java frames, or else the first line."""
    words = _FROM_JAVA.split(text, maxsplit=1)[0].strip() or text.strip()
    errors = _PYTHON_ERROR.findall(words)
    line = (errors[-1] if errors else words.splitlines()[0] if words else "It ended without a word").strip()
    return line if len(line) <= _LENGTH_MOST else line[: _LENGTH_MOST - 3] + "..."
