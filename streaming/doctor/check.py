"""The result of a check: one line, and what to do about it."""

from enum import StrEnum
from typing import NamedTuple

from streaming.terminal_text import shown

ACL_ADVICE = "grant the rights: `group-monitor doctor --acls` prints the commands"


class Status(StrEnum):
    """The status of a check; `warn`: `run` works but sees less."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(NamedTuple):
    """The result of a check; `advice` is empty if all is well."""

    status: Status
    name: str
    found: str
    advice: str = ""

    def line(self) -> str:
        """Return the result as one line. It may contain text of strangers, which must not steer the terminal."""
        text = f"{self.found} -> {self.advice}" if self.advice else self.found
        return f"{self.status:5} {self.name:18} {shown(' '.join(text.split()))}"


def ok(name: str, found: str) -> Check:
    """Return the result of a check that found nothing wrong."""
    return Check(Status.OK, name, found)


def warn(name: str, found: str, advice: str) -> Check:
    """Return the result of a check that found something without which `run` works but sees less."""
    return Check(Status.WARN, name, found, advice)


def fail(name: str, found: str, advice: str) -> Check:
    """Return the result of a check that found why `run` cannot work."""
    return Check(Status.FAIL, name, found, advice)
