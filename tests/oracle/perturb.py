"""Faults of telemetry: how a life's lines are lost, delayed, doubled or misdated. The records stay as they are.

A perturbation takes a life's rows and returns them with the instant at which each can be read. A line that is lost
leaves no gap in the offsets: it never reached its topic.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import NamedTuple

from coordinator_model.decode.source_row import CLUSTER, TELEMETRY, SourceRow
from tests.oracle.life import PROBE

HEARTBEATS = (b'"requestApiKeyName":"HEARTBEAT"', b"GROUP_HEARTBEAT")
LEAVES = (b'"requestApiKeyName":"LEAVE_GROUP"', b'"memberEpoch":-1', b'"memberEpoch":-2')
JOINS = (b'"requestApiKeyName":"JOIN_GROUP"',)
COMMITS = (b'"requestApiKeyName":"OFFSET_COMMIT"',)
HOUR_MS = 3_600_000
CONNECTION = re.compile(rb'"connection":"(?P<address>[^"-]*:\d+)-[^"-]*:(?P<client>\d+)-')
PROBE_MS = 500
"""The probe causes a line this often, so no life is without one for longer."""
SYNCS = (b'"requestApiKeyName":"SYNC_GROUP"',)


class Arrival(NamedTuple):
    """A row and when it can be read."""

    at_ms: int
    row: SourceRow


class ReadAgain(Arrival):
    """A row that was read before, at the same offset."""


Perturbation = Callable[[list[SourceRow], Random], Iterable[Arrival]]


def arrivals(rows: list[SourceRow], how: Perturbation, seed: str) -> list[Arrival]:
    """Return the rows in the order in which they can be read, with offsets as their topics would give them."""
    came = sorted(how(rows, Random(seed)), key=lambda arrival: arrival.at_ms)
    offsets = Counter[tuple[str, int]]()
    numbered: list[Arrival] = []
    given: dict[SourceRow, int] = {}
    for arrival in came:
        row = arrival.row
        if isinstance(arrival, ReadAgain):
            numbered.append(Arrival(arrival.at_ms, row._replace(offset=given[row])))
        elif row.source == TELEMETRY:
            given[row] = offsets[row.topic, row.partition]
            numbered.append(arrival._replace(row=row._replace(offset=offsets[row.topic, row.partition])))
            offsets[row.topic, row.partition] += 1
        else:
            numbered.append(arrival)
    return numbered


def as_played(rows: list[SourceRow], _: Random) -> Iterator[Arrival]:
    """Lose nothing and keep the order. A step of a broker's clock between two rows counts as no time."""
    at_ms = before_ms = rows[0].timestamp_ms
    for row in rows:
        passed_ms, before_ms = row.timestamp_ms - before_ms, row.timestamp_ms
        at_ms += passed_ms if 0 < passed_ms <= PROBE_MS else 0
        yield Arrival(at_ms, row)


def lost(share: float) -> Perturbation:
    """Lose single lines at random."""

    def perturb(rows: list[SourceRow], chance: Random) -> Iterator[Arrival]:
        for row in rows:
            if row.source != TELEMETRY or chance.random() >= share:
                yield Arrival(row.timestamp_ms, row)

    return perturb


def lost_in_bursts(share: float) -> Perturbation:
    """Lose all lines in bursts of 0.3 to 2 s, which add up to this share of the time."""

    def perturb(rows: list[SourceRow], chance: Random) -> Iterator[Arrival]:
        begins_ms = ends_ms = rows[0].timestamp_ms
        for row in rows:
            if row.timestamp_ms >= ends_ms:
                begins_ms = ends_ms + round(chance.expovariate(share / 1_150))
                ends_ms = begins_ms + chance.randint(300, 2_000)
            if row.source != TELEMETRY or not begins_ms <= row.timestamp_ms < ends_ms:
                yield Arrival(row.timestamp_ms, row)

    return perturb


def ended_ms(rows: list[SourceRow], came: list[Arrival]) -> int:
    """Return when the fault ended: when the last lost line was written, or the last late or repeated line came."""
    first_ms = rows[0].timestamp_ms
    missing = Counter(map(_line, rows)) - Counter(_line(arrival.row) for arrival in came)
    again_ms = [at_ms for at_ms, row in came if row.source == TELEMETRY and at_ms > row.timestamp_ms]
    return max([first_ms, *again_ms, *(row.timestamp_ms for row in rows if _line(row) in missing)])


def _line(row: SourceRow) -> tuple[int, bytes | None, bytes | None]:
    return row.timestamp_ms, row.key, row.value


def off(for_ms: int) -> Perturbation:
    """Lose all lines for a while, from an instant in the second quarter of a life."""

    def perturb(rows: list[SourceRow], chance: Random) -> Iterator[Arrival]:
        begins_ms = _within(rows, chance)
        for row in rows:
            if row.source != TELEMETRY or not begins_ms <= row.timestamp_ms < begins_ms + for_ms:
                yield Arrival(row.timestamp_ms, row)

    return perturb


def one_broker_off(for_ms: int) -> Perturbation:
    """Lose all lines of one of several brokers for a while, as if its shipper or its appender hung."""

    def perturb(rows: list[SourceRow], chance: Random) -> Iterator[Arrival]:
        begins_ms = _within(rows, chance)
        broker = chance.choice(_brokers(rows))
        for row in rows:
            if not _is_of(row, broker) or not begins_ms <= row.timestamp_ms < begins_ms + for_ms:
                yield Arrival(row.timestamp_ms, row)

    return perturb


def _brokers(rows: list[SourceRow]) -> list[int]:
    return sorted({row.partition for row in rows if row.source == TELEMETRY})


def _is_of(row: SourceRow, broker: int) -> bool:
    return row.source == TELEMETRY and row.partition == broker


def _within(rows: list[SourceRow], chance: Random) -> int:
    first_ms, last_ms = rows[0].timestamp_ms, rows[-1].timestamp_ms
    quarter_ms = (last_ms - first_ms) // 4
    return chance.randint(first_ms + quarter_ms, last_ms - 2 * quarter_ms)


def every_second_heartbeat(rows: list[SourceRow], _: Random) -> Iterator[Arrival]:
    """Keep every second heartbeat of each connection, as if the broker's logger sampled."""
    seen = Counter[bytes]()
    for row in rows:
        value = row.value or b""
        if row.source == TELEMETRY and any(word in value for word in HEARTBEATS):
            connection = value.partition(b'"connection":"')[2].partition(b'"')[0]
            seen[connection] += 1
            if seen[connection] % 2:
                continue
        yield Arrival(row.timestamp_ms, row)


def without(words: tuple[bytes, ...]) -> Perturbation:
    """Lose all lines of a kind, as with a filter on the logger."""

    def perturb(rows: list[SourceRow], _: Random) -> Iterator[Arrival]:
        for row in rows:
            if row.source != TELEMETRY or not any(word in (row.value or b"") for word in words):
                yield Arrival(row.timestamp_ms, row)

    return perturb


def without_probe(rows: list[SourceRow], _: Random) -> Iterator[Arrival]:
    for row in rows:
        if PROBE not in (row.value or b""):
            yield Arrival(row.timestamp_ms, row)


def probe_away(for_ms: int) -> Perturbation:
    """Let nobody probe for a while, as while `run` is down. Then the probe has another connection."""

    def perturb(rows: list[SourceRow], chance: Random) -> Iterator[Arrival]:
        begins_ms = _within(rows, chance)
        for row in rows:
            if PROBE not in (row.value or b"") or row.timestamp_ms < begins_ms:
                yield Arrival(row.timestamp_ms, row)
            elif row.timestamp_ms >= begins_ms + for_ms:
                port = re.sub(CONNECTION, lambda told: told[0].replace(told["client"], b"59999"), row.value or b"")
                yield Arrival(row.timestamp_ms, row._replace(value=port))

    return perturb


def sent_again(after_ms: int, window_ms: int = 30_000, *, same_offsets: bool = False) -> Perturbation:
    """Send the lines of 30 s again some time later, with new offsets, as a shipper does that restarts.

    ``same_offsets``: they are read again, as by a consumer that had not committed its position.
    """

    def perturb(rows: list[SourceRow], chance: Random) -> Iterator[Arrival]:
        begins_ms = _within(rows, chance)
        for row in rows:
            yield Arrival(row.timestamp_ms, row)
            if row.source == TELEMETRY and begins_ms <= row.timestamp_ms < begins_ms + window_ms:
                yield (ReadAgain if same_offsets else Arrival)(row.timestamp_ms + after_ms, row)

    return perturb


def late(by_ms: int) -> Perturbation:
    """Let lines come later than records."""

    def perturb(rows: list[SourceRow], _: Random) -> Iterator[Arrival]:
        for row in rows:
            yield Arrival(row.timestamp_ms + (by_ms if row.source == TELEMETRY else 0), row)

    return perturb


def one_broker_late(by_ms: int) -> Perturbation:
    """Let the lines of one of several brokers come later than all else."""

    def perturb(rows: list[SourceRow], chance: Random) -> Iterator[Arrival]:
        broker = chance.choice(_brokers(rows))
        for row in rows:
            yield Arrival(row.timestamp_ms + (by_ms if _is_of(row, broker) else 0), row)

    return perturb


def one_clock_off(by_ms: int) -> Perturbation:
    """Date the lines of one of several brokers by the clock of its shipper, which is off. They come in time."""

    def perturb(rows: list[SourceRow], chance: Random) -> Iterator[Arrival]:
        broker = chance.choice(_brokers(rows))
        for row in rows:
            off_ms = by_ms if _is_of(row, broker) else 0
            yield Arrival(row.timestamp_ms, row._replace(timestamp_ms=row.timestamp_ms + off_ms))

    return perturb


def clock_off(by_ms: int) -> Perturbation:
    """Date the lines by the clock of a shipper that is off, as in a wrong time zone. They come in time."""

    def perturb(rows: list[SourceRow], _: Random) -> Iterator[Arrival]:
        for row in rows:
            off_ms = by_ms if row.source == TELEMETRY else 0
            yield Arrival(row.timestamp_ms, row._replace(timestamp_ms=row.timestamp_ms + off_ms))

    return perturb


def written_in_zone(ahead_ms: int) -> Perturbation:
    """Put the broker's date before each line, in a time zone that the monitor does not know."""

    def perturb(rows: list[SourceRow], _: Random) -> Iterator[Arrival]:
        for row in rows:
            if row.source == TELEMETRY:
                at = datetime.fromtimestamp((row.timestamp_ms + ahead_ms) / 1_000, UTC)
                date = at.isoformat(" ", "milliseconds")[: -len("+00:00")].replace(".", ",").encode()
                yield Arrival(row.timestamp_ms, row._replace(value=b"[%b] DEBUG %b" % (date, row.value or b"")))
            else:
                yield Arrival(row.timestamp_ms, row)

    return perturb


def dated(instant: Callable[[int, Random], int]) -> Perturbation:
    """Give lines another timestamp than the one at which the broker wrote them, as a shipper may."""

    def perturb(rows: list[SourceRow], chance: Random) -> Iterator[Arrival]:
        for row in rows:
            at_ms = instant(row.timestamp_ms, chance) if row.source == TELEMETRY else row.timestamp_ms
            yield Arrival(max(row.timestamp_ms, at_ms), row._replace(timestamp_ms=at_ms))

    return perturb


def flushed(every_ms: int) -> Perturbation:
    """Date lines at the instant when a shipper that keeps no dates sends its buffer."""
    return dated(lambda at_ms, _: at_ms + -at_ms % every_ms)


def without_key(rows: list[SourceRow], _: Random) -> Iterator[Arrival]:
    """Drop the record keys, which name the broker: only its address identifies it then, also beside metadata."""
    for row in rows:
        if row.source == TELEMETRY:
            yield Arrival(row.timestamp_ms, row._replace(key=None))
        else:
            yield Arrival(row.timestamp_ms, _named_by_address(row) if row.source == CLUSTER else row)


def _named_by_address(row: SourceRow) -> SourceRow:
    """Return a cluster row that names each broker as the lines of its probe do if they have no key."""
    told = json.loads(row.value or b"{}")
    for broker in told.get("brokers", {}).values():
        broker["key"] = broker["key"] and f"{broker['host']}:{broker['port']}"
    return row._replace(value=json.dumps(told).encode())


def at_two_listeners(second: bytes) -> Perturbation:
    """Drop the record keys, and move every second client to another listener: one broker then has two addresses."""

    def perturb(rows: list[SourceRow], chance: Random) -> Iterator[Arrival]:
        for at_ms, row in without_key(rows, chance):
            found = CONNECTION.search(row.value or b"") if row.source == TELEMETRY else None
            if found is not None and int(found["client"]) % 2:
                value = row.value or b""
                row = row._replace(value=value[: found.start("address")] + second + value[found.end("address") :])  # noqa: PLW2901
            yield Arrival(at_ms, row)

    return perturb


def in_the_middle(rows: list[SourceRow], chance: Random) -> Iterator[Arrival]:
    """Lose all lines from before an instant, as if telemetry started then. The earlier records are there."""
    begins_ms = _within(rows, chance)
    for row in rows:
        if row.source != TELEMETRY or row.timestamp_ms >= begins_ms:
            yield Arrival(row.timestamp_ms, row)


PERTURBATIONS: dict[str, Perturbation] = {
    "as played": as_played,
    "0.1 % of lines lost": lost(0.001),
    "1 % of lines lost": lost(0.01),
    "2 % of lines lost": lost(0.02),
    "5 % of lines lost": lost(0.05),
    "0.1 % lost in bursts of 0.3-2 s": lost_in_bursts(0.001),
    "1 % lost in bursts of 0.3-2 s": lost_in_bursts(0.01),
    "2 % lost in bursts of 0.3-2 s": lost_in_bursts(0.02),
    "5 % lost in bursts of 0.3-2 s": lost_in_bursts(0.05),
    "off for 20 s": off(20_000),
    "off for 60 s": off(60_000),
    "started in the middle": in_the_middle,
    "every second heartbeat": every_second_heartbeat,
    "heartbeat lines lost": without(HEARTBEATS),
    "leave lines lost": without(LEAVES),
    "sync lines lost": without(SYNCS),
    "join lines lost": without(JOINS),
    "commit lines lost": without(COMMITS),
    "no probe": without_probe,
    "30 s sent again after 5 s": sent_again(5_000),
    "30 s sent again after 60 s": sent_again(60_000),
    "30 s read again after 60 s": sent_again(60_000, same_offsets=True),
    "instants off by up to 200 ms": dated(lambda at_ms, chance: at_ms + chance.randint(-200, 200)),
    "whole seconds": dated(lambda at_ms, _: at_ms - at_ms % 1_000),
    "instants of a flush every second": flushed(1_000),
    "instants of a flush every 5 s": flushed(5_000),
    "date in its zone, two hours ahead": written_in_zone(2 * HOUR_MS),
    "date in its zone, five hours behind": written_in_zone(-5 * HOUR_MS),
    "late by 15 s": late(15_000),
    "late by 60 s": late(60_000),
    "no record keys": without_key,
    "no record keys, two listeners": at_two_listeners(b"10.0.0.1:9192"),
    "no record keys, two IP addresses": at_two_listeners(b"10.9.0.1:9192"),
}

BY_ANOTHER_CLOCK: dict[str, Perturbation] = {
    "no date, shipper's clock an hour ahead": clock_off(HOUR_MS),
    "no date, shipper's clock an hour behind": clock_off(-HOUR_MS),
}
"""The lines agree with one another. Only the records show that their dates are wrong."""

ENDING = (
    "off for 20 s",
    "off for 60 s",
    "started in the middle",
    "30 s sent again after 5 s",
    "30 s sent again after 60 s",
    "30 s read again after 60 s",
    "one of several brokers off for 20 s",
    "one of several brokers off for 60 s",
    "off for 10 min",
    "30 s sent again after an hour",
)
"""Faults that end well before the life does."""

OF_SEVERAL_BROKERS: dict[str, Perturbation] = {
    "as played": as_played,
    "one of several brokers off for 20 s": one_broker_off(20_000),
    "one of several brokers off for 60 s": one_broker_off(60_000),
}
"""For lives whose coordinator moves."""

ONE_LATE_OR_MISDATED: dict[str, Perturbation] = {
    "one of several brokers late by 15 s": one_broker_late(15_000),
    "one of several brokers late by 60 s": one_broker_late(60_000),
    "no date, clock of one of several shippers 2 s ahead": one_clock_off(2_000),
    "no date, clock of one of several shippers 2 s behind": one_clock_off(-2_000),
    "no date, clock of one of several shippers 30 s ahead": one_clock_off(30_000),
    "no date, clock of one of several shippers 30 s behind": one_clock_off(-30_000),
}
"""As above. Lines of one broker disagree with its own records, or come after the next coordinator's: some verdicts are
wrong, as `docs/truth.md` says."""

OF_LONG_LIVES: dict[str, Perturbation] = {
    "as played": as_played,
    "off for 10 min": off(600_000),
    "30 s sent again after an hour": sent_again(3_600_000),
}
"""For lives of more than an hour."""
LONG_MS = 5_400_000
