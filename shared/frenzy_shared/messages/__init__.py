"""The wire: envelope, subjects, and version 1 of every message."""
