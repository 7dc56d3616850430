"""What a worker does for snapshots: how captures are written, and the thread that brings them to the disk."""
