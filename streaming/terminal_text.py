"""Text of strangers, made safe for a terminal."""

import unicodedata


def shown(value: object) -> str:
    r"""Make a client's text safe for a terminal: control characters are escaped (`\u001b`); None is empty."""
    text = "" if value is None else str(value)
    return "".join(f"\\u{ord(c):04x}" if unicodedata.category(c)[0] == "C" or c in "\u2028\u2029" else c for c in text)
