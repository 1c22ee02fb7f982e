"""The verdict of the demo: it compares the alerts with the broker's own log, member by member."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from streaming.embedded.truth import LEFT, SESSION_EXPIRED, TruthEvent, session_expiries

POLL_EXCEEDED: Final = "poll-exceeded"
TOLERANCE_MS: Final = 1_000
OK, MISSING, EXTRA, OFF = "ok", "MISSING", "EXTRA", "OFF"


class Left(NamedTuple):
    """A member that left the group, as the broker sees it. `stalled`: it had stopped polling; otherwise it closed."""

    group: str
    member_id: str
    stalled: bool


class Row(NamedTuple):
    """One row of the verdict; instants are in epoch milliseconds, None if there is none."""

    group: str
    client_id: str
    member_id: str
    what: str
    log_ms: int | None
    our_ms: int | None
    verdict: str

    @property
    def difference_ms(self) -> int | None:
        """Our instant minus the broker's."""
        return None if self.log_ms is None or self.our_ms is None else self.our_ms - self.log_ms


def judge(
    truth: Iterable[TruthEvent],
    alerts: Iterable[Mapping[str, Any]],
    killed: Iterable[tuple[str, str]],
    left: Iterable[Left],
) -> list[Row]:
    """Match the broker's log with the alerts that opened; `killed` has (group, member id).

    Every session expiry in the log needs an alert, and so does a stall; a member that closed needs none. Any other
    alert is extra. A killed member without an expiry in the log counts as missing too: then the log proves nothing.
    """
    truth = list(truth)
    opened = _opened(alerts)
    expiries = [expiry.lines[0] for expiry in session_expiries(truth)]
    rows = [_paired(SESSION_EXPIRED, e.group, e.member_id, e.at_ms, opened) for e in expiries]
    known = {(expiry.group, expiry.member_id) for expiry in expiries}
    rows += [_paired(SESSION_EXPIRED, *member, None, opened) for member in killed if member not in known]
    for leaver in left:
        log_ms = next((e.at_ms for e in truth if (e.kind, e.group, e.member_id) == (LEFT, *leaver[:2])), None)
        if leaver.stalled:
            rows.append(_paired(POLL_EXCEEDED, leaver.group, leaver.member_id, log_ms, opened))
        else:
            verdict = MISSING if log_ms is None else OK
            rows.append(Row(leaver.group, "", leaver.member_id, "redeployed: no alert", log_ms, None, verdict))
    rows += [_row(alert, alert["rule"], None, EXTRA) for alert in opened]
    return sorted(rows, key=lambda row: row.log_ms or row.our_ms or 0)


def _opened(alerts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the alerts that opened, each once: a webhook may receive one twice."""
    return list({alert["incident_id"]: alert for alert in alerts if alert["transition"] == "opened"}.values())


def _paired(rule: str, group: str, member_id: str, log_ms: int | None, opened: list[Mapping[str, Any]]) -> Row:
    """Remove from `opened` the alert about a member that is nearest to the log's instant, and return its row."""
    fitting = [a for a in opened if (a["rule"], a["group"], a["member_id"]) == (rule, group, member_id)]
    if not fitting:
        return Row(group, "", member_id, rule, log_ms, None, MISSING)
    alert = min(fitting, key=lambda alert: abs(_instant_ms(alert) - (log_ms or 0)))
    opened.remove(alert)
    if log_ms is None:
        return _row(alert, rule, None, MISSING)
    return _row(alert, rule, log_ms, OK if abs(_instant_ms(alert) - log_ms) <= TOLERANCE_MS else OFF)


def _row(alert: Mapping[str, Any], what: str, log_ms: int | None, verdict: str) -> Row:
    member_id, client_id = alert["member_id"] or "", alert["client_id"] or ""
    return Row(alert["group"], client_id, member_id, what, log_ms, _instant_ms(alert), verdict)


def _instant_ms(alert: Mapping[str, Any]) -> int:
    return int(alert["at_ms"] if alert["deadline_ms"] is None else alert["deadline_ms"])
