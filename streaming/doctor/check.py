"""What a check says: one line, and what to do about it."""

from enum import StrEnum
from typing import NamedTuple

ACL_ADVICE = "grant the rights: `group-monitor doctor --acls` prints the commands"


class Status(StrEnum):
    """`warn`: `run` works, and sees less."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(NamedTuple):
    """`advice` is empty where all is well."""

    status: Status
    name: str
    found: str
    advice: str = ""

    def line(self) -> str:
        """Return it as one line. What was found may contain clients' text, so line ends in it are escaped."""
        text = f"{self.found} -> {self.advice}" if self.advice else self.found
        return f"{self.status:5} {self.name:18} {' '.join(text.split())}"


def ok(name: str, found: str) -> Check:
    """All is well."""
    return Check(Status.OK, name, found)


def warn(name: str, found: str, advice: str) -> Check:
    """It works, with less to be seen."""
    return Check(Status.WARN, name, found, advice)


def fail(name: str, found: str, advice: str) -> Check:
    """It cannot work."""
    return Check(Status.FAIL, name, found, advice)
