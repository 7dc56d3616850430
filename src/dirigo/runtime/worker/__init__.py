"""A worker: one process around one kernel, its threads, and the jobs that it runs."""
