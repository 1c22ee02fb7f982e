"""Findings for each group, the worst first, from records and from what the brokers report now.

Heartbeats are not used, so nothing is said about which members are alive. Records do not say why a member was removed,
so what may be a deploy is a warning at most. Ages are relative to the topic's newest record, not to this machine's
clock.
"""

import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from coordinator_model.client import lasting_name
from coordinator_model.decode.member_protocol import subscription
from coordinator_model.decode.records import RecordType
from coordinator_model.events import RecordRead
from coordinator_model.replica.assigned_work import STREAMS_PROTOCOL
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.replay import replay
from coordinator_model.rules import setup
from coordinator_model.rules.findings import Finding
from coordinator_model.rules.partition_owned_twice import owned_twice
from coordinator_model.rules.partition_unowned import unowned_partitions
from coordinator_model.states import GroupState, GroupType
from coordinator_model.thresholds import DEFAULT_THRESHOLDS, Thresholds
from coordinator_model.wording import counted
from streaming.audit.ask import CONSUMER_PROTOCOL, Told, ToldGroup, replica_of
from streaming.audit.read import Read, Window
from streaming.audit.storm import Name, storm

HOUR_MS: Final = 3_600_000
FLAPS: Final = 3
"""A member that returns this often, each time within an hour, is flapping."""
SLOW_SYNC_MS: Final = 10_000
SHORT_POLL_MS: Final = 10_000
ABORTED_TO_WARN: Final = 3
MAX_SUMMARY: Final = 400
MAX_NAMED: Final = 3
MAX_HOSTS: Final = 10
MAX_NAME: Final = 60
"""A longer name is cut, because clients choose names and the finding needs room, too."""
SEVERITIES: Final = ("page", "warn", "info")
JUDGED: Final = (GroupType.CLASSIC, GroupType.CONSUMER)


class Found(NamedTuple):
    """One finding of the report."""

    rule: str
    severity: str
    summary: str


@dataclass(slots=True)
class Ledger:
    """One group's replica, and its past as its records show it."""

    replica: GroupReplica
    whole: bool
    comings: list[tuple[int, Name]] = field(default_factory=list)
    goings: list[tuple[int, Name]] = field(default_factory=list)
    peak: Counter[Name] = field(default_factory=Counter)
    """For each name, the most members that had it at the same time."""
    rebalances: list[int] = field(default_factory=list)
    aborted: int = 0
    slow: list[tuple[int, int]] = field(default_factory=list)
    """(end, length) of slow sync phases, in ms."""
    old: list[str] = field(default_factory=list)
    offset: int = -1


@dataclass(slots=True)
class Assessed:
    """The groups and hosts of the report."""

    groups: list[dict[str, Any]]
    hosts: list[tuple[str, int]]
    """The hosts whose members came back most often, with how often."""
    out_of_time: bool = False


def assess(read: Read, told: Told, deadline_s: float, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> Assessed:
    """Replay the records and judge every group, until `deadline_s` (monotonic)."""
    ledgers: dict[str, Ledger] = {}
    out_of_time = False
    for number, window in read.partitions.items():
        if time.monotonic() >= deadline_s:
            out_of_time = True
            break
        ledgers |= _replayed(window, whole=read.is_whole(number), thresholds=thresholds)
    ledgers = {name: ledger for name, ledger in ledgers.items() if not ledger.replica.deleted}
    context = _scene(read.newest_ms, thresholds, told.topic_partitions)
    groups = [_group(name, told.groups.get(name), ledgers.get(name), context) for name in _names(told, ledgers)]
    return Assessed(sorted(groups, key=_badness), _hosts(ledgers.values()), out_of_time)


def _hosts(ledgers: Iterable[Ledger]) -> list[tuple[str, int]]:
    """Return the hosts whose members came back most often: over twice per member, which two deploys do not explain."""
    back: Counter[str] = Counter()
    members: Counter[str] = Counter()
    for ledger in ledgers:
        for (_, host), times in returns(ledger).items():
            back[host] += times
        for (_, host), times in ledger.peak.items():
            members[host] += times
    return [
        (host, times) for host, times in back.most_common() if host and times >= FLAPS and times > 2 * members[host]
    ][:MAX_HOSTS]


def _names(told: Told, ledgers: Mapping[str, Ledger]) -> list[str]:
    """Return the groups that exist, as the brokers list them; if one did not list its groups, records add theirs."""
    return sorted({*told.groups, *(ledgers if told.is_incomplete or not told.groups else ())})


def _badness(group: Mapping[str, Any]) -> tuple[Any, ...]:
    counted = Counter(finding["severity"] for finding in group["findings"])
    return (*(-counted[severity] for severity in SEVERITIES), group["group"])


def _scene(progress_ms: int, thresholds: Thresholds, topic_partitions: Mapping[str, int]) -> JudgementContext:
    return JudgementContext(
        progress_ms=progress_ms,
        broker="",
        timer_resets=(),
        commits={},
        live_from_ms=0,
        covered_since_ms=0,
        proof_arrival_ms=0,
        consumer_session_timeout_ms=None,
        thresholds=thresholds,
        topic_partitions=topic_partitions,
    )


# ---------------------------------------------------------------------- the past


def _replayed(window: Window, *, whole: bool, thresholds: Thresholds) -> dict[str, Ledger]:
    ledgers: dict[str, Ledger] = {}
    for event in window.events:
        ledger = ledgers.get(event.group)
        if ledger is None:
            ledger = ledgers[event.group] = Ledger(GroupReplica(event.group), whole)
        _note(ledger, event, window.gaps, thresholds)
    for ledger in ledgers.values():
        if ledger.replica.ending_ms is not None:
            ledger.replica.mark_deleted()
    return ledgers


def _note(ledger: Ledger, event: RecordRead, gaps: list[int], thresholds: Thresholds) -> None:
    """Replay one record, and note which members joined or left and whether a generation completed."""
    replica = ledger.replica
    first, generation, incarnation = replica.type is GroupType.SIMPLE, replica.generation, replica.incarnation
    before = dict(replica.members)
    replay(replica, event, _scene(event.order_ms, thresholds, {}))
    if not first:
        came, went = replica.members.keys() - before.keys(), before.keys() - replica.members.keys()
        ledger.comings += [(event.order_ms, lasting_name(replica.members[name])) for name in came]
        ledger.goings += [(event.order_ms, lasting_name(before[name])) for name in went]
    ledger.peak |= Counter(lasting_name(member) for member in replica.members.values())
    if event.record_type == RecordType.GROUP_METADATA and event.value is not None:
        ledger.old = _old(event.value)
        if not first and generation >= 0 and replica.incarnation == incarnation:
            _note_generation(ledger, event, generation, gaps)
        ledger.offset = event.offset
    elif not first and replica.generation > generation >= 0 and replica.incarnation == incarnation:
        ledger.rebalances.append(event.order_ms)


def _note_generation(ledger: Ledger, event: RecordRead, before: int, gaps: list[int]) -> None:
    now = ledger.replica.generation
    if now <= before:
        return
    ledger.rebalances.append(event.order_ms)
    if ledger.offset >= 0 and bisect_right(gaps, ledger.offset) == bisect_right(gaps, event.offset):
        ledger.aborted += now - before - 1  # no record in between is missing, so those generations never completed
    joined_ms = (event.value or {}).get("currentStateTimestamp", -1)
    if ledger.replica.members and 0 < joined_ms <= event.order_ms - SLOW_SYNC_MS:
        ledger.slow.append((event.order_ms, event.order_ms - joined_ms))


def _old(value: Mapping[str, Any]) -> list[str]:
    if value["protocolType"] != CONSUMER_PROTOCOL:
        return []
    asked = {item["memberId"]: subscription(item["subscription"] or b"") for item in value["members"]}
    return [name for name, found in asked.items() if found is not None and found.version == 0]


def returns(ledger: Ledger) -> Counter[Name]:
    """Count how often each member came back within an hour after it left; `lasting_name` identifies a member."""
    gone: dict[Name, list[int]] = defaultdict(list)
    for at_ms, name in ledger.goings:
        gone[name].append(at_ms)
    back: Counter[Name] = Counter()
    for at_ms, name in ledger.comings:
        earlier = [gone_ms for gone_ms in gone[name] if at_ms - HOUR_MS <= gone_ms <= at_ms]
        if earlier:
            gone[name].remove(earlier[0])
            back[name] += 1
    return back


# ---------------------------------------------------------------------- a group


def _group(name: str, told: ToldGroup | None, ledger: Ledger | None, context: JudgementContext) -> dict[str, Any]:
    replica, is_current = _replica(name, told, ledger)
    type_ = (told.type if told else "") or (replica.type.value if replica else "classic")
    state = (told.state if told else "") or (replica.state.value if replica else GroupState.UNKNOWN.value)
    found: list[Found] = []
    if replica is not None and is_current:
        found += _now(replica, context)
        old = told.old if told is not None and told.members is not None else ledger.old if ledger else []
        found += _old_clients(replica, old)
    if ledger is not None:
        found += _past(ledger, context)
    members = len(told.members) if told and told.members is not None else len(replica.members) if replica else None
    if state == GroupState.EMPTY.value:
        members = 0
    found.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    told_findings = [finding._replace(summary=_cut(finding.summary, MAX_SUMMARY))._asdict() for finding in found]
    return {"group": name, "state": state, "type": type_, "members": members, "findings": told_findings}


def _replica(name: str, told: ToldGroup | None, ledger: Ledger | None) -> tuple[GroupReplica | None, bool]:
    """Return the group as it is now, and whether it is stable. If records and brokers differ, the brokers decide."""
    replica = ledger.replica if ledger is not None else None
    if told is not None and told.members is not None:
        if replica is None or replica.members.keys() != {member.member_id for member in told.members}:
            replica = replica_of(name, told)
    elif ledger is not None and ledger.replica.type is not GroupType.CLASSIC and not ledger.whole:
        return None, False  # members whose records were not read are missing
    stable = told is None or told.state in ("", GroupState.STABLE.value)
    return replica, replica is not None and stable and replica.state is GroupState.STABLE


def _now(replica: GroupReplica, context: JudgementContext) -> Iterator[Found]:
    """Yield findings about a stable group's current members, assignment and timeouts."""
    if replica.type not in JUDGED:
        return
    if unowned := unowned_partitions(replica, context):
        listed = ", ".join(f"{topic}-{number}" for topic, number in unowned[:8])
        summary = f"no member owns {counted(len(unowned), 'partition')} of its topics: {listed}"
        yield Found("partition-unowned", "warn", summary)  # how long this has lasted is not known
    if shared := owned_twice(replica):
        listed = ", ".join(f"{topic}-{number}" for topic, number in list(shared)[:8])
        summary = f"more than one member owns {counted(len(shared), 'partition')}: {listed}"
        yield Found("partition-owned-twice", "warn", summary)
    for rule in (setup.timeouts_inconsistent, setup.mixed_subscriptions, setup.assignment_skewed, setup.member_idle):
        if (finding := rule(replica, context, context.progress_ms)) is not None:
            yield Found(finding.rule, finding.severity.value, _without_name(finding))
    timeouts_ms = [member.rebalance_timeout_ms or 0 for member in replica.members.values()]
    short = [timeout_ms for timeout_ms in timeouts_ms if 0 < timeout_ms < SHORT_POLL_MS]
    if short:
        summary = (
            f"a rebalance timeout (max.poll.interval.ms) of only {min(short)} ms: a member that polls later leaves"
        )
        yield Found("timeouts-inconsistent", "info", summary)


def _without_name(finding: Finding) -> str:
    return finding.summary.removeprefix(f"{finding.group}: ")


def _old_clients(replica: GroupReplica, old: Iterable[str]) -> Iterator[Found]:
    names = sorted(old)
    if names and replica.protocol != STREAMS_PROTOCOL:
        clients = sorted({_cut(replica.members[name].client_id) for name in names if name in replica.members})
        shown = ", ".join(clients[:MAX_NAMED]) + (", …" if len(clients) > MAX_NAMED else "") or "clients unknown"
        summary = f"subscriptions of version 0, the oldest, from {counted(len(names), 'member')} ({shown})"
        yield Found("client-old", "info", summary)


def _past(ledger: Ledger, context: JudgementContext) -> Iterator[Found]:
    """Yield findings about the group's past, from its records."""
    thresholds = context.thresholds
    yield from _storm(ledger, thresholds)
    for name, times in returns(ledger).most_common(MAX_NAMED):
        if times >= FLAPS and times > 2 * ledger.peak[name]:
            summary = f"{_named(name)} left and came back {times} times, each time within an hour"
            yield Found("member-flapping", "warn", summary)
    if ledger.aborted:
        severity = "warn" if ledger.aborted >= ABORTED_TO_WARN else "info"
        yield Found("rebalance-aborted", severity, f"{counted(ledger.aborted, 'generation')} begun and never completed")
    if ledger.slow:
        at_ms, length_ms = max(ledger.slow, key=lambda slow: slow[1])
        worst = f"the longest wait was {length_ms / 1000:.1f} s, until {_instant(at_ms)}"
        summary = (
            f"{counted(len(ledger.slow), 'rebalance')} waited {SLOW_SYNC_MS // 1000} s or more for the leader: {worst}"
        )
        yield Found("rebalance-slow", "warn", summary)


def _storm(ledger: Ledger, thresholds: Thresholds) -> Iterator[Found]:
    found = storm(
        ledger.rebalances,
        ledger.goings,
        ledger.comings,
        ledger.peak,
        window_ms=thresholds.storm_window_ms,
        least=thresholds.storm_rebalances,
    )
    if found is None:
        return
    window_s = thresholds.storm_window_ms // 1000
    window = f"{window_s} s" if window_s % 60 else counted(window_s // 60, "minute")
    summary = f"{found.rebalances} rebalances within {window}, the last at {_instant(found.until_ms)}"
    if found.is_storm:
        yield Found("rebalance-storm", "warn", summary)
    else:
        yield Found("rebalance-storm", "info", f"{summary}: no member left twice, as in a rolling deploy")


def _named(name: Name) -> str:
    client, host = name
    shown = _cut(client) or "a client without an id"
    return f"{shown} on {host}" if host else shown


def _instant(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1000))


def _cut(text: str, longest: int = MAX_NAME) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
