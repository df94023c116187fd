"""How wire models are written and read: strict writers, lenient readers."""

from typing import Self

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """Base of every message: frozen, unknown keys refused when made, ignored when received."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="null"
    )

    def encode(self) -> bytes:
        """Return compact JSON. None is written: it may differ from a field's default."""
        return self.model_dump_json().encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read a message; a newer writer's extra fields are dropped.

        Raises:
            pydantic.ValidationError: the payload is not this message.
        """
        return cls.model_validate_json(payload, extra="ignore")
