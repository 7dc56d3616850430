"""Two batch engines that nobody here wrote, and the SQL that tells them what each Nexmark query means.

An oracle answers a query over events in Parquet folders; `comparing` says whether two answers are the same rows. DuckDB
and Spark are optional: each is imported only when its oracle runs.
"""
