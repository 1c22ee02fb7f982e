"""A report: a group's view and findings at an instant, made by a shard or by the lag rules.

A shard's outputs pass through Spark as JSON. ``as_output`` writes a report, ``of_output`` reads it, and
``read_outputs`` reads all outputs of a batch. Other kinds of outputs stay mappings.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NoReturn

REPORT = "report"
NO_SHARD = -1
MAX_NAME = 100
"""How much of a group's id an error repeats."""


class JudgedBy(StrEnum):
    """Which rules a report is about. It does not touch incidents of the other rules."""

    SHARD = "shard"
    LAG = "lag"


class BadReportError(ValueError):
    """An output of the kind ``report`` that cannot be read. The text names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """All findings about a group at ``at_ms``. A finding that is not in the report is not true any more."""

    cluster: str
    """The cluster's name in the configuration."""
    shard: int = NO_SHARD
    """The number of the shard; ``NO_SHARD``: no shard made the report."""
    seq: int = 0
    """Its place among the outputs of its shard in a batch, from 0."""
    group: str
    """The group's id; empty: the report is about brokers, and about clients without a group."""
    at_ms: int
    """When the report is true, in the coordinator's time, in milliseconds since the epoch."""
    view: dict[str, Any] | None = None
    """The view of the group, as values for JSON; None: no view."""
    findings: list[dict[str, Any]] = field(default_factory=list)
    """All findings, as values for JSON: the fields of ``Finding``, and ``cluster``."""
    deleted: bool = False
    """Whether the group was deleted. All its incidents end then."""
    judged: JudgedBy = JudgedBy.SHARD
    """Which rules the report is about."""
    pending: Iterable[tuple[str, str, int]] | None = None
    """Only about lag: incidents that may still go on although they are not among the findings, as rule, subject and
    instant of the last commit (milliseconds since the epoch). None: nothing is known, so no incident ends. It is read
    only if the group has an open incident about lag, once for each."""
    owners: list[str] | None = None
    """Only about lag: the ids of the members that own partitions. Incidents about other members end. None: unknown."""
    holder: str = ""
    """Who found these findings, and keeps their incidents open: an operator key, a checkpoint or a part of ``serve``.
    A report in which the finding is missing closes only an incident that its own holder has found."""
    reason: str | None = None
    """Only about brokers: the reason with which incidents close that are no longer found; None: the rule's own."""

    def as_output(self) -> dict[str, Any]:
        """Return the report as an output, in values for JSON. View and findings are shared, not copied."""
        return {"kind": REPORT, **{name: getattr(self, name) for name in _FIELDS}}

    @classmethod
    def of_output(cls, output: Mapping[str, Any]) -> "GroupReport":
        """Read what ``as_output`` returned; unknown fields are left out. Raises ``BadReportError``."""
        values = {name: output[name] for name in _FIELDS if name in output}
        for name, value in values.items():
            if type(value) not in _TYPES[name]:  # exactly: True is an int
                _refuse(output, name, f"is a {type(value).__name__}")
        for name in _REQUIRED:
            if name not in values:
                _refuse(output, name, "is missing")
        if (view := values.get("view")) is not None and type(view.get("members")) is not list:
            _refuse(output, "view", "has no list of members")
        _check_findings(output, values.get("findings", ()))
        values["judged"] = _judged(output, values.get("judged", JudgedBy.SHARD))
        values["pending"] = _pending(output, values.get("pending"))
        if any(type(owner) is not str for owner in values.get("owners") or ()):
            _refuse(output, "owners", "holds something else than ids")
        return cls(**values)


Said = GroupReport | Mapping[str, Any]
"""An output that has been read: a report, or a mapping of another ``kind``."""

FINDING_FIELDS = frozenset(
    {
        "cluster", "rule", "severity", "group", "subject", "opened_ms", "at_ms", "evidence", "cause", "summary",
        "broker", "generation", "incarnation", "member_id", "instance_id", "client_id", "client_host",
        "connection", "client_software", "deadline_ms", "partitions", "detail", "closed_reason", "closed_ms",
    }
)  # fmt: skip
"""The fields of a finding in a report."""
_FIELDS = tuple(f.name for f in fields(GroupReport))
_REQUIRED = ("cluster", "group", "at_ms", "findings", "deleted")
_NONE = type(None)
_TYPES: dict[str, tuple[type, ...]] = {
    "cluster": (str,),
    "shard": (int,),
    "seq": (int,),
    "group": (str,),
    "at_ms": (int,),
    "view": (dict, _NONE),
    "findings": (list,),
    "deleted": (bool,),
    "judged": (str, JudgedBy),
    "pending": (list, _NONE),
    "owners": (list, _NONE),
    "holder": (str,),
    "reason": (str, _NONE),
}


def _refuse(output: Mapping[str, Any], name: str, why: str) -> NoReturn:
    where = f"shard {output.get('shard')!r:.20}, group {output.get('group')!r:.{MAX_NAME}}"
    raise BadReportError(f"not a report ({where}): {name} {why}")


def _check_findings(output: Mapping[str, Any], findings: Iterable[Any]) -> None:
    for finding in findings:
        if type(finding) is not dict:
            _refuse(output, "findings", f"holds a {type(finding).__name__}")
        if not finding.keys() >= FINDING_FIELDS:
            missing = ", ".join(sorted(FINDING_FIELDS - finding.keys()))
            _refuse(output, "findings", f"holds one without {missing}")


def _judged(output: Mapping[str, Any], told: str) -> JudgedBy:
    try:
        return JudgedBy(told)
    except ValueError:
        _refuse(output, "judged", f"is {told!r:.20}")


def _pending(output: Mapping[str, Any], told: list[Any] | None) -> list[tuple[str, str, int]] | None:
    if told is None:
        return None
    for row in told:
        if type(row) not in (list, tuple) or [type(value) for value in row] != [str, str, int]:
            _refuse(output, "pending", "holds something else than rule, subject and instant")
    return [tuple(row) for row in told]


def read_outputs(outputs: Iterable[Mapping[str, Any]]) -> list[Said]:
    """Read a shard's outputs of a batch, in order. Raises ``BadReportError``."""
    return [GroupReport.of_output(output) if output["kind"] == REPORT else output for output in outputs]


def reports_in(said: Iterable[Said]) -> Iterator[GroupReport]:
    """Yield the reports."""
    return (output for output in said if isinstance(output, GroupReport))


def of_kind(said: Iterable[Said], kind: str) -> Iterator[Mapping[str, Any]]:
    """Yield the outputs of a kind that is not a report."""
    return (output for output in said if not isinstance(output, GroupReport) and output["kind"] == kind)


def place_of(said: Said) -> tuple[int, int]:
    """Return the shard of an output, and the output's place among those of the shard in the batch."""
    if isinstance(said, GroupReport):
        return said.shard, said.seq
    return said.get("shard", NO_SHARD), said.get("seq", 0)


def instant_ms(said: Said) -> int:
    """Return the instant of an output by the coordinator's clock; 0: it has none."""
    at_ms = said.at_ms if isinstance(said, GroupReport) else said.get("at_ms")
    return at_ms or 0
