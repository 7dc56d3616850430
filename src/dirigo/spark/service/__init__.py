"""A cluster in the background, and the file by which it is found."""
