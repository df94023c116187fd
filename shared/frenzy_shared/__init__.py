"""The vocabulary, contracts and ports that every Frenzy part shares."""
