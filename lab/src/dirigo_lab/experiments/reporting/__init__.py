"""What runs gave: stored, summarised with Spark, and told in pages."""
