"""The reference page is what the commands say."""

from pathlib import Path

from frenzy.cli.reference import render

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == render(), "python -m frenzy.cli.reference > docs/reference/cli.md"
