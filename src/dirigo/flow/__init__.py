"""Dataflows of operators over Arrow batches and plain Python rows.

Start reading at ``api`` (a flow as it is written) and ``plan`` (what runs, and how the kernel runs it); the operators are in
``operators``, one file or folder each.
"""
