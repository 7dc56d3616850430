"""The operators that have actors of their own, one file each."""
