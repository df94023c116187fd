"""Options that commands share."""

from enum import StrEnum
from typing import Annotated, TypeAlias

import typer


class Format(StrEnum):
    """How data is written to stdout."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


Output: TypeAlias = Annotated[Format, typer.Option("--output", "-o", help="How to write the data.")]
Quiet: TypeAlias = Annotated[
    bool, typer.Option("--quiet", "-q", help="Write only what scripts need.")
]
NoInput: TypeAlias = Annotated[bool, typer.Option("--no-input", help="Never ask anything.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before acting.")]
Url: TypeAlias = Annotated[
    str | None,
    typer.Option("--url", help="The server; else FRENZY_URL, else what `frenzy up` wrote."),
]
Project: TypeAlias = Annotated[str, typer.Option("--project", help="The job's project.")]
JobArgument: TypeAlias = Annotated[str, typer.Argument(metavar="JOB", help="A job's id.")]
JobArguments: TypeAlias = Annotated[list[str], typer.Argument(metavar="JOB...", help="Jobs' ids.")]
FileArgument: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="FILE", help="The job file (YAML); - reads standard input.")
]
File: TypeAlias = Annotated[
    str | None, typer.Option("--file", "-f", metavar="FILE", help="The same as the argument FILE.")
]
