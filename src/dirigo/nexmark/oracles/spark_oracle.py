"""Answers Nexmark queries with Spark SQL, over events in Parquet folders, and starts the small session that this needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from dirigo.kernel import DirigoError
from dirigo.nexmark.oracles.comparing import normalise
from dirigo.nexmark.oracles.queries import sql_text, table_files

_SECONDS_TO_LET_JAVA_EXIT = 20
# Effective before Spark reads its own defaults, which would write warnings about the machine while it starts.
_LOG_SETTINGS = """\
rootLogger.level = error
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def run(spark: Any, query: str, events: Path) -> pa.Table:
    """The normalised answer to `query` over the tables in the folder `events`; the session `spark` is left as it is."""
    text = sql_text(query, "spark")
    tables = table_files(query, text, events)
    # A session beside the caller's: same engine, but views and settings of its own.
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", spark.conf.get("spark.sql.shuffle.partitions"))
    for table, its_files in tables.items():
        session.read.parquet(*its_files).createOrReplaceTempView(table)
    return normalise(session.sql(text).toArrow())


@contextmanager
def local_session(settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A quiet Spark session on two threads of this machine; when left, it and the Java process it started are gone.

    `settings` come on top of ours, for example `{"spark.driver.memory": "4g"}` for many events.
    """
    pyspark = _pyspark()
    if pyspark.SparkContext._active_spark_context is not None:
        raise DirigoError("A Spark session is already running in this process: use that one, or stop it first.")
    java_was_running = pyspark.SparkContext._gateway is not None
    with TemporaryDirectory(prefix="dirigo-spark-") as folder:
        spark = _start(pyspark, Path(folder), settings or {})
        try:
            spark.sparkContext.setLogLevel("ERROR")
            yield spark
        finally:
            spark.stop()
            if not java_was_running:
                _end_java(pyspark)


def _start(pyspark: Any, folder: Path, more_settings: Mapping[str, str]) -> Any:
    log_settings = folder / "log4j2.properties"
    log_settings.write_text(_LOG_SETTINGS, encoding="utf-8")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings.as_uri()} -Dderby.system.home={folder}",
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **more_settings,
    }
    builder = pyspark.sql.SparkSession.builder.master("local[2]").appName("dirigo nexmark oracle")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except pyspark.errors.PySparkRuntimeError as error:
        raise DirigoError(
            "The Spark oracle could not start Spark: install Java 17 or later and let JAVA_HOME name its folder."
        ) from error


def _end_java(pyspark: Any) -> None:
    """Ends the Java process behind Spark, which would otherwise stay until Python itself ends."""
    context = pyspark.SparkContext
    gateway = context._gateway
    # A gateway that somebody else gave to Python has no process that would be ours to end.
    if gateway is None or gateway.proc is None:
        return
    gateway.shutdown()
    context._gateway = None
    context._jvm = None
    gateway.proc.stdin.close()  # the Java side ends when this pipe does
    gateway.proc.wait(_SECONDS_TO_LET_JAVA_EXIT)


def _pyspark() -> Any:
    try:
        import pyspark
        import pyspark.errors
        import pyspark.sql
    except ImportError as error:
        raise DirigoError("The Spark oracle needs PySpark, which is not installed: run `pip install pyspark`.") from error
    return pyspark
