"""Dirigo on Apache Spark: sessions, and the hosting of workers on them."""
