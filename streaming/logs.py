"""Logs of the long-running commands: JSON, one line per event, on stderr.

JSON escapes clients' strings, so they cannot break lines or send control characters to a terminal.
"""

import sys
from typing import TextIO, cast

import structlog


class _Stderr:
    """The current `sys.stderr`: while a progress bar is drawn, lines go above it."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure() -> None:
    """Set structlog up for this process."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=True,
    )
