"""DataFrames in and out: a job reads one Spark DataFrame, and its results are another.

``python examples/dataframes.py`` starts Spark, and prints what Spark SQL makes of the job's results:

    +------+------+------------+
    |region|orders|busiest_hour|
    +------+------+------------+
    |  east|  2500|          23|
    | north|  2500|          31|
    | south|  2500|          30|
    |  west|  2500|          25|
    +------+------+------------+

``dirigo run examples/dataframes.py`` runs the job in the Spark session of this file.
"""

from pyspark.sql import SparkSession

import dirigo as dg

WORKERS = 2
# Spark needs a slot for each worker, and one for queries.
spark = SparkSession.builder.master(f"local[{WORKERS + 1}]").config("spark.sql.shuffle.partitions", 1).getOrCreate()

ORDERS = """
    SELECT element_at(array('north', 'east', 'south', 'west'), CAST(id % 4 + 1 AS INT)) AS region,
           timestamp_seconds(1777600800 + id * id % 864000) AS at
    FROM range(10000)
"""
BUSIEST = "SELECT region, sum(orders) AS orders, max(orders) AS busiest_hour FROM hours GROUP BY ALL ORDER BY ALL"


def build() -> dg.Dataflow:
    flow = dg.Dataflow("orders-per-hour")
    orders = flow.source(dg.from_spark(spark.sql(ORDERS), time="at", name="orders"))
    orders.key_by("region").window(dg.Tumbling("1h")).aggregate(orders=dg.count()).sink(dg.to_spark())
    return flow


flow = build()

if __name__ == "__main__":
    with dg.Cluster(WORKERS, spark=spark) as cluster:
        cluster.run(flow)
        hours = spark.read.format("dirigo").option("job", "orders-per-hour").load()
        hours.createOrReplaceTempView("hours")
        spark.sql(BUSIEST).show()
    spark.stop()
