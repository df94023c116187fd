"""``frenzy doctor``."""

import sys
from dataclasses import asdict
from typing import Final

import typer

from frenzy.cli import exits, output
from frenzy.cli.options import Format, Output
from frenzy.local.doctor import Verdict, checks

_STYLES: Final = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


def doctor(*, output_: Output = Format.TABLE) -> None:
    """Check this machine and say what to do about problems.

    Exits 1 when something fails; warnings are limits that Frenzy can live with.
    """
    found = []
    for check in checks():
        found.append(check)
        if output_ not in (Format.JSON, Format.YAML):
            console = output.out()
            console.print(check.verdict, style=_STYLES[check.verdict], end="")
            gap = " " * (5 - len(check.verdict))  # a console in a pipe drops blanks at an end
            sys.stdout.write(f"{gap}{check.name}: {check.detail}\n")
            if check.remedy:
                sys.stdout.write(f"       try: {check.remedy}\n")
    if output_ in (Format.JSON, Format.YAML):
        output.write_data([asdict(check) for check in found], output_)
    if any(check.verdict is Verdict.FAIL for check in found):
        raise typer.Exit(exits.Exit.ERROR)
