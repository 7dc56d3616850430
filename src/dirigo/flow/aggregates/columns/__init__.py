"""What aggregates are computed with: columns of groups, sorted, added and counted."""
