"""Environment variables that override the file: `GROUP_MONITOR_SERVE__PORT` is `[serve] port`.

Two underscores separate table and key; a top-level key has none. A variable with two underscores that matches no key is
an error, like a wrong key in the file. Arrays of tables (`[[groups]]`, `[[notify]]`) have no variables.
"""

import json
import tomllib
from collections.abc import Collection, Mapping
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ConfigDict, SecretStr, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from streaming.config.kafka import ENVIRONMENT_PREFIX
from streaming.config.problems import Problems
from streaming.config.toml_errors import nearest

BETWEEN: Final = "__"
IS_EMPTY: Final = "it is empty: unset it or fill it"


def variables_of(settings: type[BaseModel]) -> dict[str, tuple[tuple[str, ...], FieldInfo]]:
    """Return for every environment variable the place of its key, and the key's field."""
    found: dict[str, tuple[tuple[str, ...], FieldInfo]] = {}
    for name, field in settings.model_fields.items():
        table = field.annotation
        if isinstance(table, type) and issubclass(table, BaseModel):
            for key, inner in table.model_fields.items():
                found[f"{ENVIRONMENT_PREFIX}{name}{BETWEEN}{key}".upper()] = ((name, key), inner)
        elif get_origin(table) is not tuple:
            found[f"{ENVIRONMENT_PREFIX}{name}".upper()] = ((name,), field)
    return found


def require_text(environment: Mapping[str, str], variables: Collection[str], problems: Problems) -> None:
    """Refuse `variables` whose bytes are not UTF-8; Python holds such bytes as surrogates."""
    for variable, text in environment.items():
        if variable in variables and text.encode("utf-8", "replace").decode() != text:
            problems.add_variable(variable, "its value is not UTF-8")
    if problems:
        problems.stop()


def add_environment(
    raw: dict[str, Any], settings: type[BaseModel], environment: Mapping[str, str], problems: Problems
) -> None:
    """Put the environment's values into `raw`, where they override those of the file."""
    known = variables_of(settings)
    for variable, text in sorted(environment.items()):
        if variable in known:
            place, field = known[variable]
            if SecretStr in get_args(field.annotation) and not text.strip():
                problems.add_variable(variable, IS_EMPTY)
                continue
            *tables, key = place
            section = raw.setdefault(tables[0], {}) if tables else raw
            if isinstance(section, dict):
                section[key] = _value(text, field)
                problems.variables[place] = variable
        elif variable.startswith(ENVIRONMENT_PREFIX) and BETWEEN in variable:
            problems.add_variable(variable, f"no key has this variable{nearest(variable, known)}")


def _value(text: str, field: FieldInfo) -> Any:
    """Parse a variable as the type of its key: as plain text if the key accepts text, else as a TOML value."""
    if _accepts(field, text):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # no TOML, a number of thousands of digits, or deeply nested
        return text


def _accepts(field: FieldInfo, text: str) -> bool:
    try:
        TypeAdapter(field.rebuild_annotation(), config=ConfigDict(strict=True)).validate_json(json.dumps(text))
    except ValidationError:
        return False
    return True
