"""JSON text of a batch's outputs and rows, by pydantic's core: faster than the standard library's `json`.

Lone surrogates, which a client's text may contain, have no bytes in UTF-8, so they are left to the standard library.
"""

import json
from typing import Any

from pydantic_core import from_json, to_json


def dumps(value: Any) -> str:
    """Return a value as JSON, without spaces."""
    try:
        return to_json(value).decode()
    except ValueError:
        return json.dumps(value, separators=(",", ":"))


def loads(text: str) -> Any:
    """Return the value of JSON text."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)
