"""Run by a test in a process of its own: a query of numbers into a job, from its checkpoint on, until it is killed.

Should the query fail, because the service is gone for a moment, it is started again, as its user would.
"""

from __future__ import annotations

import sys
import time

from pyspark.sql import SparkSession

import dirigo as dg
from dirigo.spark.failures import is_spark_gone

ROWS = 300  # of a micro-batch


def feed(service: str, job: str, checkpoint: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    dg.register(spark)
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 3).load()
    while True:
        try:
            query = (
                numbers.selectExpr("value AS n")
                .writeStream.format("dirigo")
                .option("service", service)
                .option("job", job)
                .option("checkpointLocation", checkpoint)
                .trigger(processingTime="100 milliseconds")
                .start()
            )
            query.awaitTermination()
        except Exception as error:
            if is_spark_gone(error):
                raise
            sys.stderr.write(f"the query is started again: {str(error).splitlines()[0][:200]}\n")
            time.sleep(0.5)


if __name__ == "__main__":
    feed(*sys.argv[1:])
