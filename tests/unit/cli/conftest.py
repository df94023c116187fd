from tests.support.cli import cli

__all__ = ["cli"]
