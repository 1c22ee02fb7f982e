"""The problems of a configuration: one line per problem, in the order of the file, in our words.

Pydantic finds the problems, but its messages are about Python types, which people who write TOML need not know.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from streaming.config.toml_errors import ConfigError, TomlPath, line_of

AFTER_THE_FILE: Final = 10**9


class Problems:
    """Collects problems; `variables` maps keys to the environment variables that they came from."""

    def __init__(self, path: Path, lines: Mapping[TomlPath, int]) -> None:
        self._path = path
        self._lines = lines
        self._found: list[tuple[int, str]] = []
        self.variables: dict[TomlPath, str] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, where: TomlPath, text: str) -> None:
        """Record a problem at a place in the file, or in the environment."""
        if (variable := self.variables.get(where)) is not None:
            self.add_variable(variable, text)
            return
        line = line_of(where, self._lines)
        self._found.append((line, f"{self._path}:{line}: {text}"))

    def add_variable(self, variable: str, text: str) -> None:
        """Record a problem with an environment variable."""
        self._found.append((AFTER_THE_FILE, f"{self._path}: {variable}: {text}"))

    def stop(self) -> NoReturn:
        """Raise `ConfigError` with all of them, in the order of the file."""
        raise ConfigError("\n".join(text for _, text in sorted(self._found, key=lambda found: found[0])))


def described(detail: Mapping[str, Any], where: TomlPath, raw: Mapping[str, Any]) -> str:
    """Return one of pydantic's errors in our words; `where` is the place in the file.

    The value found there is quoted, if `raw` has it and it is not a URL, which may contain a password.
    """
    context = detail.get("ctx", {})
    words = _WORDS.get(detail["type"])
    text = words(context) if words else str(detail["msg"])
    found = "" if detail["type"].startswith("union_tag") else _found(where, raw)
    return f"{'.'.join(map(str, where))}: {text}{found}" if where else text


def _kinds(context: Mapping[str, Any]) -> str:
    """List the values that a discriminator may have."""
    return str(context["expected_tags"]).replace("'", "")


def _literals(context: Mapping[str, Any]) -> str:
    """Turn `'a', 'b' or 'c'` into `a, b, c`."""
    return str(context["expected"]).replace(" or ", ", ").replace("'", "")


def _at_least(context: Mapping[str, Any]) -> str:
    number = context["min_length"]
    return "it must not be empty" if number == 1 else f"at least {number} are needed"


_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "missing": lambda _: "this key is needed",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), lambda _: "a whole number is needed"),
    **dict.fromkeys(("float_type", "float_parsing"), lambda _: "a number is needed"),
    "finite_number": lambda _: "a finite number is needed",
    "string_type": lambda _: "text in quotes is needed",
    "path_type": lambda _: "a path in quotes is needed",
    **dict.fromkeys(("bool_type", "bool_parsing"), lambda _: "true or false is needed"),
    **dict.fromkeys(("tuple_type", "list_type"), lambda _: "a list is needed: […]"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), lambda _: "a table is needed: {…}"),
    "greater_than": lambda context: f"a number greater than {context['gt']} is needed",
    "greater_than_equal": lambda context: f"a number of at least {context['ge']} is needed",
    "less_than_equal": lambda context: f"a number of at most {context['le']} is needed",
    "string_too_short": _at_least,
    "too_short": _at_least,
    "string_too_long": lambda context: f"at most {context['max_length']} characters are allowed",
    "literal_error": lambda context: f"one of {_literals(context)} is needed",
    "union_tag_invalid": lambda context: f'"{context["tag"]}" is not a receiver; one of {_kinds(context)}',
    "union_tag_not_found": lambda _: "this key is needed",
    "value_error": lambda context: str(context["error"]),
}


def _found(where: TomlPath, raw: Any) -> str:
    """Return the text that quotes the value found there, if it is a plain value and no URL."""
    for part in where:
        try:
            raw = raw[part]
        except (KeyError, IndexError, TypeError):
            return ""
    plain = isinstance(raw, str | int | float) and not any("url" in str(part) for part in where)
    return f", not {json.dumps(raw, ensure_ascii=False)[:80]}" if plain else ""
