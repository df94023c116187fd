"""Job arrays: one specification, many jobs."""

from typing import Annotated, Final, Self

from pydantic import ConfigDict, Field, model_validator

from frenzy_shared.messages.base import TextOrMapping, Wire

MAX_JOBS: Final = 1000
LABEL: Final = "array"  # on every job of an array: the array's id
INDEX_LABEL: Final = "array-index"

Count = Annotated[int, Field(ge=1, le=MAX_JOBS)]


class Array(Wire):
    """Many jobs from one specification.

    Each is named after its index. ``{index}`` and ``{value}`` stand for its own in the arguments
    of the script and in environment variables; its ranks see ``FRENZY_ARRAY_INDEX``.
    """

    model_config = ConfigDict(strict=True, use_attribute_docstrings=True)

    count: Count | None = None
    """So many jobs, with the indices 0, 1, 2, ..."""
    values: (
        Annotated[tuple[TextOrMapping, ...], Field(min_length=1, max_length=MAX_JOBS, strict=False)]
        | None
    ) = None
    """A job for each: a text, for `{value}`; or keys of the job file that are different in it,
    such as `{learning_rate: 0.001}`.
    """
    at_most: Count | None = None
    """Run at most so many at a time: every job waits until the one so many before it is over."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.count is None) == (self.values is None):
            raise ValueError("give count or values, and not both")
        return self
