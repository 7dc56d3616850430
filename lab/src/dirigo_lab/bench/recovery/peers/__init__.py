"""The other side of the comparison: how soon Spark Structured Streaming and Flink give results again after a kill."""
