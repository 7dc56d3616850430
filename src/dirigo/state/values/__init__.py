"""Values of any kind: how they are copied, compared, measured and turned into bytes. Knows no states."""
