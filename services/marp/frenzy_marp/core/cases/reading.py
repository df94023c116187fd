"""Read a case's JSON field by field, with errors that name the field."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar, cast

from frenzy_shared.errors import InvalidSpec

E = TypeVar("E", bound=StrEnum)

_LARGEST = 2**62  # what a count may be before sums leave 64 bits
_LONGEST = 1_000  # characters of a text


class CaseError(InvalidSpec):
    """A case is not what the schema says."""


class Fields:
    """One JSON object of a case; ``path`` is how errors name it."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise CaseError(f"{path or 'case'}: an object is needed, not {value!r:.60}")
        self._values = cast("Mapping[str, Any]", value)
        self._path = path

    def section(self, name: str) -> "Fields":
        """Return a nested object."""
        return Fields(self._require(name), self._name(name))

    def optional_section(self, name: str) -> "Fields | None":
        """Return a nested object, or None."""
        value = self._values.get(name)
        return None if value is None else Fields(value, self._name(name))

    def text(self, name: str) -> str:
        """Return a text."""
        value = self._require(name)
        if not isinstance(value, str) or len(value) > _LONGEST:
            raise self._wrong(name, f"a text of at most {_LONGEST} characters", value)
        return value

    def optional_text(self, name: str) -> str:
        """Return a text; empty where the source does not say."""
        return "" if self._values.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        """Return a boolean; absent or null is False."""
        value = self._values.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def optional_flag(self, name: str) -> bool | None:
        """Return a boolean, or None where the source does not say."""
        return None if self._values.get(name) is None else self.flag(name)

    def count(self, name: str, least: int = 1) -> int:
        """Return a whole number of at least ``least``."""
        value = self._require(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _LARGEST:
            raise self._wrong(name, f"a whole number from {least}", value)
        return value

    def optional_count(self, name: str, least: int = 1) -> int | None:
        """Return a whole number, or None."""
        return None if self._values.get(name) is None else self.count(name, least)

    def number(self, name: str) -> float:
        """Return a finite number, not negative."""
        value = self._require(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
            raise self._wrong(name, "a number, not negative", value)
        return float(value)

    def optional_number(self, name: str) -> float | None:
        """Return a number, or None."""
        return None if self._values.get(name) is None else self.number(name)

    def word(self, name: str, words: type[E]) -> E:
        """Return a word of a closed list."""
        return self._word(name, self._require(name), words)

    def optional_word(self, name: str, words: type[E]) -> E | None:
        """Return a word of a closed list, or None."""
        value = self._values.get(name)
        return None if value is None else self._word(name, value, words)

    def words(self, name: str, words: type[E]) -> tuple[E, ...]:
        """Return a list of words of a closed list."""
        return tuple(self._word(name, value, words) for value in self._list(name))

    def counts(self, name: str) -> tuple[int, ...] | None:
        """Return a list of whole numbers, or None."""
        if self._values.get(name) is None:
            return None
        values = self._list(name)
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
                raise self._wrong(name, "a list of whole numbers", value)
        return tuple(cast("list[int]", values))

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        return tuple(self._values)

    def raw(self, name: str) -> object:
        """Return a field as it is, None when absent."""
        return self._values.get(name)

    def _list(self, name: str) -> list[object]:
        value = self._require(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list", value)
        return cast("list[object]", value)

    def _word(self, name: str, value: object, words: type[E]) -> E:
        if not isinstance(value, str) or value not in {word.value for word in words}:
            raise self._wrong(name, f"one of {', '.join(words)}", value)
        return words(value)

    def _require(self, name: str) -> object:
        value = self._values.get(name)
        if value is None:
            raise CaseError(f"{self._name(name)}: missing")
        return cast("object", value)

    def _wrong(self, name: str, wanted: str, value: object) -> CaseError:
        return CaseError(f"{self._name(name)}: {wanted} is needed, not {value!r:.60}")

    def _name(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name
