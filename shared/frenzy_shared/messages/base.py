"""How wire models are written and read: strict writers, lenient readers."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _text_or_mapping(value: Any) -> Any:  # noqa: ANN401 - whatever a document holds
    """Refuse all else in one sentence: of a union pydantic tells each member's own complaint."""
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        raise ValueError("must be text, or a mapping whose keys are text")
    if not isinstance(value, str | dict):
        raise ValueError("must be text, or a mapping of keys to values")  # noqa: TRY004 - pydantic's
    return value


TextOrMapping = Annotated[str | dict[str, Any], BeforeValidator(_text_or_mapping)]


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
