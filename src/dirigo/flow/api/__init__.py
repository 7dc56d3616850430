"""What users write: dataflows, streams, functions, objectives, and how their arguments are understood."""
