"""What follows from records and from what the brokers say now: findings a group, worst first.

Nothing here needs a heartbeat, so nothing is said of who lives. Why a member went is not in the records, so what may be
a deploy is a warning at most. Ages are by the topic's newest record, never by this machine's clock.
"""

import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from coordinator_model.events import RecordRead
from coordinator_model.findings import Finding
from coordinator_model.liveness import Scene
from coordinator_model.member_protocol import subscription
from coordinator_model.records import RecordType
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.replay import replay
from coordinator_model.replica.returns import who
from coordinator_model.rules import setup
from coordinator_model.rules.partition_owned_twice import owned_twice
from coordinator_model.rules.partition_unowned import unowned_partitions
from coordinator_model.states import GroupState, GroupType
from coordinator_model.thresholds import DEFAULT_THRESHOLDS, Thresholds
from streaming.audit.ask import CONSUMER_PROTOCOL, Told, ToldGroup, old_members, replica_of
from streaming.audit.read import Read, Window

HOUR_MS: Final = 3_600_000
FLAPS: Final = 3
"""Returns within an hour that make a member a flapping one."""
SLOW_SYNC_MS: Final = 10_000
SHORT_POLL_MS: Final = 10_000
ABORTED_TO_WARN: Final = 3
MAX_SUMMARY: Final = 400
MAX_NAMED: Final = 3
SEVERITIES: Final = ("page", "warn", "info")
JUDGED: Final = (GroupType.CLASSIC, GroupType.CONSUMER)


class Found(NamedTuple):
    """One finding of the report."""

    rule: str
    severity: str
    summary: str


@dataclass(slots=True)
class Ledger:
    """One group's replica, and what its records say of its past."""

    replica: GroupReplica
    whole: bool
    comings: list[tuple[int, str]] = field(default_factory=list)
    goings: list[tuple[int, str]] = field(default_factory=list)
    peak: Counter[str] = field(default_factory=Counter)
    """How many members looked alike at once."""
    rebalances: list[int] = field(default_factory=list)
    aborted: int = 0
    slow: list[tuple[int, int]] = field(default_factory=list)
    """(when, length) of sync phases that were slow."""
    old: list[str] = field(default_factory=list)
    offset: int = -1


@dataclass(slots=True)
class Assessed:
    """What the report is made of."""

    groups: list[dict[str, Any]]
    hosts: list[tuple[str, int]]
    """Hosts whose members came back most often."""
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
    scene = _scene(read.newest_ms, thresholds, told.topic_partitions)
    groups = [_group(name, told.groups.get(name), ledgers.get(name), scene) for name in _names(told, ledgers)]
    hosts: Counter[str] = Counter()
    for ledger in ledgers.values():
        for name, times in returns(ledger).items():
            if host := name.partition("\n")[2]:
                hosts[host] += times
    worst = [(host, times) for host, times in hosts.most_common(10) if times >= FLAPS]
    return Assessed(sorted(groups, key=_badness), worst, out_of_time)


def _names(told: Told, ledgers: Mapping[str, Ledger]) -> list[str]:
    """Return the groups that are there: the brokers know; where one of them did not tell, the records do."""
    return sorted({*told.groups, *(ledgers if told.is_incomplete or not told.groups else ())})


def _badness(group: Mapping[str, Any]) -> tuple[Any, ...]:
    counted = Counter(finding["severity"] for finding in group["findings"])
    return (*(-counted[severity] for severity in SEVERITIES), group["group"])


def _scene(progress_ms: int, thresholds: Thresholds, topic_partitions: Mapping[str, int]) -> Scene:
    return Scene(
        progress_ms=progress_ms,
        broker="",
        restarts=(),
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
            ledger.replica.finish()
    return ledgers


def _note(ledger: Ledger, event: RecordRead, gaps: list[int], thresholds: Thresholds) -> None:
    """Replay one record, and note who came, who went, and what became of the generation."""
    replica = ledger.replica
    first, generation, incarnation = replica.type is GroupType.SIMPLE, replica.generation, replica.incarnation
    before = dict(replica.members)
    replay(replica, event, _scene(event.order_ms, thresholds, {}))
    if not first:
        came, went = replica.members.keys() - before.keys(), before.keys() - replica.members.keys()
        ledger.comings += [(event.order_ms, who(replica.members[name])) for name in came]
        ledger.goings += [(event.order_ms, who(before[name])) for name in went]
    ledger.peak |= Counter(who(member) for member in replica.members.values())
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
        ledger.aborted += now - before - 1  # none of the records in between is missing: they never were
    joined_ms = (event.value or {}).get("currentStateTimestamp", -1)
    if ledger.replica.members and 0 < joined_ms <= event.order_ms - SLOW_SYNC_MS:
        ledger.slow.append((event.order_ms, event.order_ms - joined_ms))


def _old(value: Mapping[str, Any]) -> list[str]:
    if value["protocolType"] != CONSUMER_PROTOCOL:
        return []
    asked = {item["memberId"]: subscription(item["subscription"] or b"") for item in value["members"]}
    return [name for name, found in asked.items() if found is not None and found.version == 0]


def returns(ledger: Ledger) -> Counter[str]:
    """Count, for each member across restarts, how often it came back within an hour of going."""
    gone: dict[str, list[int]] = defaultdict(list)
    for at_ms, name in ledger.goings:
        gone[name].append(at_ms)
    back: Counter[str] = Counter()
    for at_ms, name in ledger.comings:
        earlier = [gone_ms for gone_ms in gone[name] if at_ms - HOUR_MS <= gone_ms <= at_ms]
        if earlier:
            gone[name].remove(earlier[0])
            back[name] += 1
    return back


# ---------------------------------------------------------------------- a group


def _group(name: str, told: ToldGroup | None, ledger: Ledger | None, scene: Scene) -> dict[str, Any]:
    replica, is_current = _replica(name, told, ledger)
    type_ = (told.type if told else "") or (replica.type.value if replica else "classic")
    state = (told.state if told else "") or (replica.state.value if replica else GroupState.UNKNOWN.value)
    found: list[Found] = []
    if replica is not None and is_current:
        found += _now(replica, scene)
        old = old_members(told) if told is not None and told.members is not None else ledger.old if ledger else []
        found += _old_clients(replica, old)
    if ledger is not None:
        found += _past(ledger, scene)
    members = len(told.members) if told and told.members is not None else len(replica.members) if replica else None
    if state == GroupState.EMPTY.value:
        members = 0
    found.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    told_findings = [finding._replace(summary=_short(finding.summary))._asdict() for finding in found]
    return {"group": name, "state": state, "type": type_, "members": members, "findings": told_findings}


def _replica(name: str, told: ToldGroup | None, ledger: Ledger | None) -> tuple[GroupReplica | None, bool]:
    """Return the group as it is now, and whether it is settled: the records and the brokers agree on who is in it."""
    replica = ledger.replica if ledger is not None else None
    if told is not None and told.members is not None:
        if replica is None or replica.members.keys() != {member.member_id for member in told.members}:
            replica = replica_of(name, told)
    elif ledger is not None and ledger.replica.type is not GroupType.CLASSIC and not ledger.whole:
        return None, False  # members whose records are older than what was read are missing
    stable = told is None or told.state in ("", GroupState.STABLE.value)
    return replica, replica is not None and stable and replica.state is GroupState.STABLE


def _now(replica: GroupReplica, scene: Scene) -> Iterator[Found]:
    """Judge a stable group's members, assignment and timeouts as they are."""
    if replica.type not in JUDGED:
        return
    if unowned := unowned_partitions(replica, scene):
        lasts = scene.progress_ms - (replica.stable_since_ms or scene.progress_ms)
        page = lasts >= scene.thresholds.page_after_ms and bool(replica.stable_since_ms)
        listed = ", ".join(f"{topic}-{number}" for topic, number in unowned[:8])
        summary = f"{len(unowned)} partitions of its topics have no owner in the group: {listed}"
        yield Found("partition-unowned", "page" if page else "warn", summary)
    if shared := owned_twice(replica):
        listed = ", ".join(f"{topic}-{number}" for topic, number in list(shared)[:8])
        summary = f"{len(shared)} partitions have more than one owner by its last record: {listed}"
        yield Found("partition-owned-twice", "warn", summary)
    for rule in (setup.timeouts_inconsistent, setup.mixed_subscriptions, setup.assignment_skewed, setup.member_idle):
        if (finding := rule(replica, scene, scene.progress_ms)) is not None:
            yield Found(finding.rule, finding.severity.value, _without_name(finding))
    timeouts_ms = [member.rebalance_timeout_ms or 0 for member in replica.members.values()]
    short = [timeout_ms for timeout_ms in timeouts_ms if 0 < timeout_ms < SHORT_POLL_MS]
    if short:
        summary = f"a rebalance timeout (max.poll.interval.ms) of only {min(short)} ms: a slow poll ends a membership"
        yield Found("timeouts-inconsistent", "info", summary)


def _without_name(finding: Finding) -> str:
    return finding.summary.removeprefix(f"{finding.group}: ")


def _old_clients(replica: GroupReplica, old: Iterable[str]) -> Iterator[Found]:
    names = sorted(old)
    if names and replica.protocol != setup.STREAMS_PROTOCOL:
        clients = sorted({replica.members[name].client_id for name in names if name in replica.members})
        named = ", ".join(clients[:MAX_NAMED]) or "clients unknown"
        summary = f"subscriptions of version 0, members: {len(names)} ({named}): a Java client before 2.4, or a"
        yield Found("client-old", "info", f"{summary} library that writes no newer version (kafka-python 3.0)")


def _past(ledger: Ledger, scene: Scene) -> Iterator[Found]:
    """Tell what the records say of the group's past."""
    thresholds = scene.thresholds
    most, until_ms = busiest(ledger.rebalances, thresholds.storm_window_ms)
    if most >= thresholds.storm_rebalances:
        an_hour, _ = busiest(ledger.rebalances, HOUR_MS)
        minutes = thresholds.storm_window_ms // 60_000
        summary = f"{most} rebalances in {minutes} minutes, until {_instant(until_ms)}; {an_hour} in its worst hour"
        yield Found("rebalance-storm", "warn", summary)
    for name, times in returns(ledger).most_common(MAX_NAMED):
        if times >= FLAPS and times > 2 * ledger.peak[name]:
            summary = f"{_named(name)} left and came back {times} times, each time within an hour"
            yield Found("member-flapping", "warn", summary)
    if ledger.aborted:
        severity = "warn" if ledger.aborted >= ABORTED_TO_WARN else "info"
        yield Found("rebalance-aborted", severity, f"{ledger.aborted} generations were begun and never completed")
    if ledger.slow:
        at_ms, length_ms = max(ledger.slow, key=lambda slow: slow[1])
        worst = f"the slowest took {length_ms / 1000:.1f} s, at {_instant(at_ms)}"
        summary = f"{len(ledger.slow)} rebalances waited {SLOW_SYNC_MS // 1000} s or more for the leader: {worst}"
        yield Found("rebalance-slow", "warn", summary)


def busiest(instants_ms: list[int], window_ms: int) -> tuple[int, int]:
    """Return the most that lie in one window, and the last of them; (0, 0) for none."""
    best, first = (0, 0), 0
    for last, at_ms in enumerate(instants_ms):
        while instants_ms[first] < at_ms - window_ms:
            first += 1
        best = max(best, (last - first + 1, at_ms))
    return best


def _named(name: str) -> str:
    client, _, host = name.partition("\n")
    return f"{client or 'a client without id'} on {host}" if host else client


def _instant(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1000))


def _short(text: str) -> str:
    return text if len(text) <= MAX_SUMMARY else f"{text[: MAX_SUMMARY - 1]}…"
