"""The strategies, one file each."""
