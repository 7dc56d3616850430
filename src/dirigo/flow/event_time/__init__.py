"""Event time: the column that says it, watermarks, and windows."""
