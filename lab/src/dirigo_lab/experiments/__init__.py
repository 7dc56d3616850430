"""The paper's experiments and our own: a file or a folder each, and what they have in common."""
