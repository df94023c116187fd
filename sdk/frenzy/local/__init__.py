"""Run all of Frenzy on one machine: no root, no Docker (`frenzy up`, `frenzy demo`)."""
