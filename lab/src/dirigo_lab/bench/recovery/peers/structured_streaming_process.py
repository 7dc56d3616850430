"""The process that `structured_streaming` starts and kills: the query. It speaks by the files of its results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dirigo_lab.bench.recovery.peers.row_files import NUMBER_DIGITS

_FILES_PER_BATCH_MOST = 1_000


def main() -> None:
    work = json.loads(sys.argv[1])
    memory_mb, scratch = work["executor_memory_mb"], work["scratch"]
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
        "spark.executor.memory": f"{memory_mb}m",
        "spark.local.dir": scratch,
        "spark.deploy.maxExecutorRetries": "-1",  # we kill them often
        "spark.locality.wait": "300ms",  # by default, 3 s are waited for an executor that is gone
        "spark.shuffle.io.retryWait": "200ms",  # and 5 s, three times, for rows that it had
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.files.openCostInBytes": "1000",  # small files together, or each is a task of its own
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # or looking at them is one too
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.streaming.stateStore.providerClass": _STORES[work.get("store", "in memory")],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.master(f"local-cluster[2,1,{memory_mb}]").appName("dirigo bench recovery")
    spark = builder.config(map=settings).getOrCreate()
    told = Path(work["told"])
    query = (
        _newest_of_each_key(spark, work["rows"], work["bytes_per_key"])
        .writeStream.outputMode("update")
        .foreachBatch(lambda batch, number: _tell(told, batch, number))
        .option("checkpointLocation", work["checkpoint"])
        .trigger(processingTime="0 seconds")
        .start()
    )
    query.awaitTermination()


_IN_SPARK = "org.apache.spark.sql.execution.streaming.state"
_STORES = {"in memory": f"{_IN_SPARK}.HDFSBackedStateStoreProvider", "rocksdb": f"{_IN_SPARK}.RocksDBStateStoreProvider"}


def _newest_of_each_key(spark: Any, folder: str, bytes_per_key: int) -> Any:
    rows = spark.readStream.schema("number BIGINT, key BIGINT, due_ms BIGINT")
    rows = rows.option("maxFilesPerTrigger", _FILES_PER_BATCH_MOST).csv(folder)
    filler = f"REPEAT('Z', {bytes_per_key - NUMBER_DIGITS})"
    kept = f"CONCAT(LPAD(CAST(number AS STRING), {NUMBER_DIGITS}, '0'), {filler})"
    newest = rows.selectExpr("key", f"STRUCT(number, due_ms, {kept} AS kept) AS row").groupBy("key")
    return newest.agg({"row": "max", "*": "count"}).selectExpr(
        "`max(row)`.number",
        "`max(row)`.due_ms",
        "`count(1)` AS times",
        f"CAST(SUBSTRING(`max(row)`.kept, 1, {NUMBER_DIGITS}) AS BIGINT) AS kept_number",
        "LENGTH(`max(row)`.kept) AS kept_bytes",
    )


def _tell(folder: Path, batch: Any, number: int) -> None:
    """A batch that is done again after a kill writes the same file again."""
    lines = [",".join(map(str, row)) for row in batch.collect()]
    if lines:
        hidden = folder / f".batch-{number:08d}.csv"
        hidden.write_text("\n".join(lines) + "\n")
        hidden.replace(folder / f"batch-{number:08d}.csv")


if __name__ == "__main__":
    main()
