"""A driver for tests, to be killed: a session of our own with standing workers, until a line comes in or Ctrl-C.

The line "stop" stops the session, and the next one ends the driver.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from dirigo.spark.hosting import WorkerHost
from dirigo.spark.session import OwnSession, check_session
from spark.standalone import QUICK_START
from spark.standing import Stand, standing

WORKERS = 2


def main(folder: str, master: str = "") -> None:
    stand = Stand(Path(folder))
    with OwnSession(WORKERS, master or None, {**QUICK_START, "spark.executor.memory": "512m"}) as spark:
        check_session(spark, WORKERS)
        host = WorkerHost(spark, standing())
        try:
            for slot in range(WORKERS):
                host.start(slot, stand.payload(slot))
            for slot in range(WORKERS):
                stand.wait_for_run(slot)
            assert spark.range(100).selectExpr("sum(id)").collect() == [(4950,)]
            (stand.folder / "ready").touch()
            if sys.stdin.readline() == "stop\n":
                spark.stop()
                sys.stdin.readline()
        except KeyboardInterrupt:
            (stand.folder / "interrupted").touch()
        finally:
            for slot in range(WORKERS):
                stand.tell("go", slot)
            host.stop_all()
            (stand.folder / "failures").write_text(str([host.failures(slot) for slot in range(WORKERS)]))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored if the tests run in a shell's background
    main(*sys.argv[1:])
