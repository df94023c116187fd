"""Technology behind MARP's ports."""
