"""The results of jobs: posted by workers, kept in logs on disk, and read by clients and Spark."""
