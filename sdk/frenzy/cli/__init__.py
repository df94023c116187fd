"""The frenzy command."""


def main() -> None:
    """Run the command line."""
