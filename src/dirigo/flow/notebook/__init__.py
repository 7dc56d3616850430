"""How things show themselves in a notebook: HTML without scripts, and without anything from elsewhere."""
