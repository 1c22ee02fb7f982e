"""A comparison of what the monitor says with what the brokers' logs say, member by member.

python -m tests.e2e.compare CAPTURE.jsonl.gz …      replays each and prints what `judge` finds; exit 1 on a difference
"""

import functools
import itertools
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from streaming.capture.file import open_text, read_rows
from streaming.embedded.truth import (
    POLL_TIMEOUT_REASON,
    REBALANCE_TIMEOUT,
    SESSION_EXPIRED,
    Expiry,
    TruthEvent,
    missed_rebalances,
    session_expiries,
)
from tests.e2e import limits, quiet
from tests.e2e.poll_truth import Sleepers, names_of, polled_in_time, refused, returns, slept
from tests.e2e.silence import (
    SAME_EXPIRY_MS,
    Silence,
    heartbeats_by_group,
    lines_by_broker,
    members_shown_ms,
    replaced_unseen,
)
from tests.e2e.world import Played
from tests.support.pauses import TOLERANCE_MS, ended_at_a_pause

POLL_EXCEEDED = "poll-exceeded"
MEMBER_REMOVED = "member-removed"

TRAILING_MS = 1_000
AFTER_A_MOVE_MS = 3_000  # a coordinator that loads restarts its timers at an instant known only within an interval
MOVE_IS_RECENT_MS = 20_000
TIE_MS = 20  # how exactly lines and records show when a timer was started
WIDEST_MS = 120_000  # an interval that is wider says too little, though it may hold the truth
GENERATION_ENDS = ("rebalance", "generation", "empty")


@dataclass(frozen=True)
class Row:
    """One expiry or timeout: in the log, in our reports, or in both."""

    rule: str
    group: str
    member_id: str
    log_ms: int | None
    deadline_ms: int | None
    tolerance_ms: int
    evidence: str = ""
    cause: str = ""
    untold: bool = False
    """Whether nothing outside the broker and its client shows it.

    See `poll_rows`, `ended_with_coordinator`, `Silence`, `died_unseen` and `replaced_unseen`.
    """
    unheard: bool = False
    """Whether the client's own report agrees with ours, and no broker's log shows it: see `poll_rows`."""
    tied: bool = False
    """Whether two timers of the member were due at once: see `with_ties`."""
    between_ms: tuple[int, int] | None = None
    """The interval in which the deadline lies, if the incident states one."""
    moved: bool = False
    """Whether a coordinator had loaded the group shortly before."""
    at_a_pause: bool = False
    """Whether that interval is a pause of a broker, and the session ended when the pause began or ended."""

    @property
    def _by_its_interval(self) -> bool:
        """Whether the stated interval holds the truth, if a coordinator had just loaded the group.

        The coordinator started the session anew when it loaded. The heartbeats that it answers at once do not show
        when: it answers them in the same way while it is loading. If a join phase goes on meanwhile, no record shows
        when the session ended either.
        """
        if not self.moved or self.between_ms is None or self.log_ms is None:
            return False
        from_ms, until_ms = self.between_ms
        return until_ms - from_ms <= WIDEST_MS and self._is_in_its_interval

    @property
    def _is_in_its_interval(self) -> bool:
        """Whether the truth lies in the stated interval; it does if none is stated."""
        if self.between_ms is None or self.log_ms is None:
            return True
        from_ms, until_ms = self.between_ms
        return from_ms - TOLERANCE_MS <= self.log_ms <= until_ms + TOLERANCE_MS

    @property
    def difference_ms(self) -> int | None:
        return None if self.log_ms is None or self.deadline_ms is None else self.deadline_ms - self.log_ms

    @property
    def verdict(self) -> str:
        if self.tied:
            return "TIE"
        if self.log_ms is None:
            return "UNHEARD" if self.unheard else "EXTRA"
        if self.deadline_ms is None:
            return "UNTOLD" if self.untold else "MISSING"
        if abs(self.deadline_ms - self.log_ms) <= self.tolerance_ms and self._is_in_its_interval:
            return "ok"
        return "WITHIN" if self.at_a_pause or self._by_its_interval else "OFF"


def replay(played: Played) -> list[dict]:
    """Return what the `replay` command prints for the capture, run as a user would."""
    code = "from streaming.cli import main; main()"
    command = [sys.executable, "-c", code, "replay", str(played.capture), "--config", str(played.config)]
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    if printed.returncode != 0:
        raise RuntimeError(f"replay failed: {printed.stderr[-2000:]}")
    return [json.loads(line) for line in printed.stdout.splitlines()]


def opened(printed: Iterable[dict], rule: str) -> list[dict]:
    return [
        line
        for line in printed
        if line["kind"] == "incident" and line["transition"] == "opened" and line["rule"] == rule
    ]


def told(printed: Iterable[dict], rule: str) -> list[dict]:
    """Return the openings of a rule, and the lines of an open incident that have another removal's deadline.

    A member that comes back behind a stalled write, is never heard, and is removed again has one incident.
    """
    deadlines_ms: dict[str, int | None] = {}
    lines = []
    for line in printed:
        if line["kind"] != "incident" or line["rule"] != rule:
            continue
        before_ms, now_ms = deadlines_ms.get(line["incident_id"]), line["deadline_ms"]
        moved = before_ms is not None and now_ms is not None and now_ms - before_ms > AFTER_A_MOVE_MS
        if line["transition"] == "opened" or moved:
            lines.append(line)
            deadlines_ms[line["incident_id"]] = now_ms
    return lines


def captured(truth: list[TruthEvent], printed: list[dict]) -> list[TruthEvent]:
    """Return what happened to members while their coordinator's telemetry was recorded, and all else that was logged.

    The last second may leave no trace. A broker that died early and stayed away logs nothing more, and the others go
    on.
    """
    (summary,) = (line for line in printed if line["kind"] == "summary")
    last_ms = {broker: seen["last_ms"] - TRAILING_MS for broker, seen in summary["coverage"]["brokers"].items()}
    return [event for event in truth if not event.member_id or event.at_ms <= last_ms.get(event.broker, 0)]


def named(played: Played, event: TruthEvent) -> bool:
    """Tell whether the capture holds a member's id at all.

    A member whose JoinGroup was answered 15 behind a stalled write is a member for the coordinator. If it never comes
    back, no answer and no record shows that: a static one's id is nowhere, a dynamic one's only in refused JoinGroups.
    """
    return event.member_id.encode() in _bytes_of(played.capture)


@functools.cache
def _bytes_of(capture: Path) -> bytes:
    """Return every key and value of a capture, one after the other, except refused JoinGroups."""
    with open_text(capture) as lines:
        parts = (part for row in read_rows(lines) for part in (row.key, row.value) if part)
        return b"\n".join(part for part in parts if not _REFUSED_JOIN.search(part))


_REFUSED_JOIN = re.compile(rb'"requestApiKeyName":"JOIN_GROUP".*"response":\{"throttleTimeMs":\d+,"errorCode":[1-9]')


def refuted(printed: Iterable[dict]) -> list[dict]:
    return [line for line in printed if line["kind"] == "incident" and line.get("reason") == "refuted"]


def session_rows(
    truth: list[TruthEvent],
    printed: list[dict],
    pauses_ms: Sequence[tuple[int, int]] = (),
    lines_ms: Mapping[str, Sequence[int]] | None = None,
    heard_ms: Mapping[str, Sequence[int]] | None = None,
    capture: Path | None = None,
) -> list[Row]:
    """Pair the session expiries of the log with ours, each once, nearest first."""
    inside = captured(truth, printed)
    rows = _paired(SESSION_EXPIRED, session_expiries(inside), told(printed, SESSION_EXPIRED), _moves(truth))
    rows = [replace(row, at_a_pause=_ended_at_a_pause(row, pauses_ms)) for row in rows]
    unknown = [line for line in opened(printed, MEMBER_REMOVED) if line["cause"] == "unknown"]
    silence = Silence(inside, unknown, lines_ms or {}, heard_ms)

    def is_hidden(row: Row) -> bool:
        unseen = capture is not None and replaced_unseen(inside, row, capture)
        return unseen or ended_with_coordinator(inside, row) or silence.hides(row)

    return [replace(row, untold=row.verdict == "MISSING" and is_hidden(row)) for row in rows]


def _moves(truth: list[TruthEvent]) -> Callable[[TruthEvent], bool]:
    """Return a function that tells whether a coordinator had loaded the partition shortly before an event."""
    loads = [event for event in truth if event.kind == "coordinator-loaded"]
    return lambda event: any(
        load.partition == event.partition and 0 <= event.at_ms - load.at_ms <= MOVE_IS_RECENT_MS for load in loads
    )


def pauses(actions: Iterable[dict]) -> list[tuple[int, int]]:
    """Return from when to when brokers were paused, according to the actions that `chaos` noted."""
    found, since_ms = [], {}
    for action in actions:
        match action["action"].split():
            case ["pause", broker, *_]:
                since_ms[broker] = action["at_ms"]
            case [broker, "is", "back"] if broker in since_ms:
                found.append((since_ms.pop(broker), action["at_ms"]))
    return found


def _ended_at_a_pause(row: Row, pauses_ms: Sequence[tuple[int, int]]) -> bool:
    """Tell whether a pause of a broker explains the interval that the incident states."""
    if row.between_ms is None or row.log_ms is None:
        return False
    return ended_at_a_pause(row.log_ms, *row.between_ms, pauses_ms)


def ended_with_coordinator(truth: Iterable[TruthEvent], row: Row) -> bool:
    """Tell whether a session ended in a join phase that ended with its coordinator, so that nothing outside shows it.

    The member's JoinGroup may have waited in that phase, because no answer shows that it did not. The next coordinator
    loads the member from the log. If the end of the session began the phase, answers to other members show it.
    """
    began, partition = False, -1
    for event in truth:
        if event.group == row.group and event.kind in GENERATION_ENDS:
            if event.at_ms >= (row.log_ms or 0):
                return False
            began, partition = event.kind == "rebalance", event.partition
        elif event.kind == "coordinator-loaded" and event.partition == partition and event.at_ms > (row.log_ms or 0):
            return began
    return False


def rebalance_rows(truth: list[TruthEvent], printed: list[dict], capture: Path | None = None) -> list[Row]:
    """Pair the members that missed a join, sync or revocation; their instants are compared loosely."""
    inside = captured(truth, printed)
    rows = _paired(REBALANCE_TIMEOUT, missed_rebalances(inside), opened(printed, REBALANCE_TIMEOUT), _moves(truth))

    def is_hidden(row: Row) -> bool:
        return capture is not None and (died_unseen(inside, row, capture) or replaced_unseen(inside, row, capture))

    return [replace(row, untold=row.verdict == "MISSING" and is_hidden(row)) for row in rows]


def died_unseen(truth: Sequence[TruthEvent], row: Row, capture: Path) -> bool:
    """Tell whether a coordinator removed a member as a join phase ended, and was replaced before anything showed it.

    A classic group's generation is written once its leader has sent the assignments. The next coordinator loads the
    generation before, with the member. Only the leader's answers list the members: to the others, every answer is the
    same whether the member had rejoined or not.
    """
    at_ms = row.log_ms or 0
    after = [event for event in truth if event.at_ms >= at_ms]
    began = next((event for event in after if event.kind == "generation" and event.group == row.group), None)
    if began is None or began.at_ms > at_ms + TIE_MS:
        return False
    loads = (event for event in after if event.kind == "coordinator-loaded" and event.partition == began.partition)
    load = next((event for event in loads if event.at_ms > began.at_ms), None)
    if load is None or load.broker == began.broker:
        return False
    shown = members_shown_ms(capture, row.group, began.broker, row.member_id)
    return not any(at_ms <= ms <= load.at_ms for ms in shown)


def with_ties(sessions: list[Row], rebalances: list[Row]) -> tuple[list[Row], list[Row]]:
    """Mark members whose session, by our calculation, ended when another of their timers ran according to the log.

    Which of two timers that are due within milliseconds runs first is visible only inside the broker.
    """
    extra = [(row.group, row.member_id, row.deadline_ms or 0) for row in sessions if row.verdict == "EXTRA"]
    missing = [(row.group, row.member_id, row.log_ms or 0) for row in rebalances if row.verdict == "MISSING"]
    tied = {
        pair
        for said, logged in itertools.product(extra, missing)
        if said[:2] == logged[:2] and abs(said[2] - logged[2]) <= TIE_MS
        for pair in (said, logged)
    }
    return (
        [replace(row, tied=(row.group, row.member_id, row.deadline_ms or 0) in tied) for row in sessions],
        [replace(row, tied=(row.group, row.member_id, row.log_ms or 0) in tied) for row in rebalances],
    )


def poll_rows(played: Played, truth: list[TruthEvent], printed: list[dict]) -> list[Row]:
    """Pair the leaves of consumers that had not polled within their limit with ours.

    Java clients say why they leave. The others do not: it shows once they join again on the same connection. If they
    died before, came back on another connection, or had been members for less than their limit, nothing shows it. Nor
    does anything if they pushed that they had polled, perhaps in time. A leave that reached no coordinator is in no
    log: then its own line and the client's own report are the truth. So is the client's report if it pushed when it
    last polled: its limit had passed then, and its leave may wait behind a heartbeat in flight.
    """
    sleepers = Sleepers(played.told, played.actions, names_of(played.capture))
    breaches = slept(captured(truth, printed), sleepers)
    rows = _paired(
        POLL_EXCEEDED,
        [Expiry([event], certain=True) for event in breaches],
        opened(printed, POLL_EXCEEDED),
        lambda _: False,
    )
    missing = {(row.member_id, row.log_ms) for row in rows if row.verdict == "MISSING"}
    returned = returns(played.capture, [event for event in breaches if (event.member_id, event.at_ms) in missing])
    returned -= polled_in_time(played.capture, returned) if returned else set()
    says_so = {event for event in breaches if event in returned or POLL_TIMEOUT_REASON in event.detail}
    silent = missing - {(event.member_id, event.at_ms) for event in says_so}
    refused_leaves = refused(played.capture) if any(row.verdict == "EXTRA" for row in rows) else []
    judged = []
    for row in rows:
        said = [
            leave
            for leave in refused_leaves
            if row.verdict == "EXTRA" and _is_of(row, *leave) and sleepers.overslept(*leave)
        ]
        refused_leaves = [leave for leave in refused_leaves if leave not in said[:1]]
        untold = (row.member_id, row.log_ms) in silent
        judged.append(replace(_by_its_clients_word(row, sleepers), untold=untold, unheard=bool(said)))
    return judged


def _by_its_clients_word(row: Row, sleepers: Sleepers) -> Row:
    """Compare a deadline that the client itself reported, and that its leave follows, with the end of its limit."""
    passed_ms = None if row.log_ms is None else sleepers.limit_passed_ms(row.member_id, row.log_ms)
    if row.verdict != "OFF" or row.evidence != "observed" or passed_ms is None or passed_ms > (row.log_ms or 0):
        return row
    return replace(row, log_ms=passed_ms)


def _is_of(row: Row, member_id: str, said_ms: int) -> bool:
    return member_id == row.member_id and abs(said_ms - (row.deadline_ms or 0)) <= TOLERANCE_MS


def _paired(rule: str, expiries: list[Expiry], incidents: list[dict], moved: Callable[[TruthEvent], bool]) -> list[Row]:
    """Pair lines of the log with incidents of the same member, nearest first, each once.

    Of an expiry with several lines, one must be paired; the others may be, if the incident closed in between.
    """
    pairs = [
        (abs(_instant(incident) - line.at_ms), number, line, incident)
        for expiry in expiries
        for line in expiry.lines
        for number, incident in enumerate(incidents)
        if (incident["group"], incident["member_id"]) == (line.group, line.member_id)
    ]
    said: dict[TruthEvent, dict] = {}
    used: set[int] = set()
    for off_ms, number, line, incident in sorted(pairs, key=lambda pair: pair[:2]):
        if line not in said and number not in used and off_ms <= SAME_EXPIRY_MS:
            said[line] = incident
            used.add(number)
    rows = [_row(rule, incident, line.at_ms, moved=moved(line)) for line, incident in said.items()]
    rows += [
        Row(rule, line.group, line.member_id, line.at_ms, None, TOLERANCE_MS)
        for expiry in expiries
        for line in expiry.lines[:1]
        if expiry.certain and not any(line in said for line in expiry.lines)
    ]
    rows += [_row(rule, incident, None, moved=False) for number, incident in enumerate(incidents) if number not in used]
    return sorted(rows, key=lambda row: row.log_ms or row.deadline_ms or 0)


def _row(rule: str, incident: dict, log_ms: int | None, *, moved: bool) -> Row:
    tolerance_ms = AFTER_A_MOVE_MS if moved or rule == REBALANCE_TIMEOUT else TOLERANCE_MS
    from_ms, until_ms = (incident.get("detail", {}).get(f"deadline_{end}_ms") for end in ("from", "until"))
    return Row(
        rule,
        incident["group"],
        incident["member_id"],
        log_ms,
        _instant(incident),
        tolerance_ms,
        incident["evidence"],
        incident["cause"],
        moved=moved,
        between_ms=None if from_ms is None or until_ms is None else (from_ms, until_ms),
    )


def _instant(incident: dict) -> int:
    return incident["at_ms"] if incident["deadline_ms"] is None else incident["deadline_ms"]


def opened_twice(printed: Iterable[dict]) -> list[dict]:
    """Return the openings of incidents that were open already."""
    seen: set[str] = set()
    again = []
    for line in printed:
        if line["kind"] == "incident" and line["transition"] == "opened":
            if line["incident_id"] in seen:
                again.append(line)
            seen.add(line["incident_id"])
    return again


def score(rule: str, rows: Iterable[Row]) -> str:
    """Return for people how much of what we said was true, how much of the truth we said, how far off deadlines were.

    A deadline that is off names the right member: it counts as said, and as wrong in the last column. What nothing
    outside shows counts as neither, and has a number of its own. So has a deadline whose stated interval holds the
    truth.
    """
    verdicts = Counter(row.verdict for row in rows)
    off_ms = sorted(abs(row.difference_ms) for row in rows if row.difference_ms is not None)
    right = verdicts["ok"] + verdicts["OFF"] + verdicts["WITHIN"]
    said, true = right + verdicts["EXTRA"], right + verdicts["MISSING"]
    untold = f"; {verdicts['UNTOLD']} more not observable" if verdicts["UNTOLD"] else ""
    untold += f"; {verdicts['UNHEARD']} more by the client's word alone" if verdicts["UNHEARD"] else ""
    untold += f"; {verdicts['TIE']} more where two timers were due at once" if verdicts["TIE"] else ""
    untold += f"; {verdicts['WITHIN']} dated by an interval" if verdicts["WITHIN"] else ""
    spread = f"p50 {off_ms[len(off_ms) // 2]} ms, max {off_ms[-1]} ms" if off_ms else "-"
    return (
        f"{rule:18} said {said:>4}, precision {_share(right, said)}; true {true:>4}, recall {_share(right, true)};"
        f" deadlines off by {spread}, {verdicts['OFF']} too far{untold}"
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "  -  "


def table(rows: Iterable[Row]) -> str:
    """Return a table for people, with one line per member."""
    head = f"{'rule':18}{'group':20}{'member':44}{'log ms':>15}{'our ms':>15}{'difference':>12}  verdict"
    lines = [
        f"{row.rule:18}{row.group:20}{row.member_id:44.44}{_cell(row.log_ms):>15}{_cell(row.deadline_ms):>15}"
        f"{_cell(row.difference_ms):>12}  {row.verdict} {row.evidence} {row.cause}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def _cell(number: int | None) -> str:
    return "-" if number is None else str(number)


def judge(played: Played) -> bool:
    """Print how the monitor compares with the brokers of a capture; tell whether nothing was wrong."""
    printed = replay(played)
    truth = [event for event in played.truth if not event.member_id or named(played, event)]
    nameless = {event.member_id for event in played.truth} - {event.member_id for event in truth}
    sessions, rebalances = with_ties(
        session_rows(
            truth,
            printed,
            pauses(played.actions),
            lines_by_broker(played.capture),
            heartbeats_by_group(played.capture),
            played.capture,
        ),
        rebalance_rows(truth, printed, played.capture),
    )
    rules = {
        SESSION_EXPIRED: sessions,
        POLL_EXCEEDED: poll_rows(played, truth, printed),
        REBALANCE_TIMEOUT: rebalances,
    }
    within = limits.within(rules, len(nameless), len({event.member_id for event in played.truth}))
    bad = [row for rows in rules.values() for row in rows if row.verdict not in limits.MOST | {"ok": 1.0}]
    taken_back, again = refuted(printed), opened_twice(printed)
    print(f"{played.capture}: {len(taken_back)} refuted, {len(again)} opened twice, {len(nameless)} members unnamed")
    for rule, rows in rules.items():
        print(score(rule, rows))
    for line in taken_back + again:
        print(f"  {line['transition']} {line.get('reason', '')} {line['incident_id']}: {line['summary']}")
    if bad:
        print(table(bad))
    blamed = limits.blamed(printed, played.actions)
    reached = limits.reached(captured(played.truth, printed), played.truth)
    print(limits.pages(printed), *blamed, *within, sep="\n")
    found = quiet.compare(played) if played.moments else quiet.Findings()
    print(
        f"quiet points: {found.agreed} of {found.agreed + len(found.wrong)} agreed;"
        f" {found.untold} more set aside, for a write or a move was not told yet"
        f" (at most {quiet.MOST_SET_ASIDE:.0%} of all may be)",
        *found.wrong,
        sep="\n",
    )
    return found.right and reached and not (bad or taken_back or again or blamed or within)


def main() -> None:
    sys.exit(not min(judge(Played(Path(n).name.removesuffix(".jsonl.gz"), Path(n).parent)) for n in sys.argv[1:]))


if __name__ == "__main__":
    main()
