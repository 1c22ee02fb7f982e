"""Requests that need no permission, at a given rate: `python -m tests.benchmarks.hostile PORT GROUP RATE_PER_S`.

A process of its own. One fifth each: joins that Kafka refuses, joins of unknown groups, probes that are not ours,
requests about unknown groups (one id in ten is of 32 KB), heartbeats for members that the live group never had. For
every five requests it produces a record of garbage to the client-telemetry topic. Once a second it prints how many
requests it has sent, how many were answered and how many records it has produced, as a JSON line.
"""

import json
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator

from confluent_kafka import Producer

from tests.support import requests

HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, LIST_GROUPS = 12, 13, 14, 16
CLIENT_TOPIC = "group-client-telemetry"
SLOTS_PER_S = 20
LONG = 32_000
STRANGE = "\u2028\u0085\"\\{}[]\x00\x1b[31m\ud7ff,:'<script>"
STRANGERS = 100_000  # different ids of members, and of groups that no coordinator keeps
JOINED_STRANGERS = 500  # groups that the broker keeps: each ListGroups walks over all of them
ANSWER_TIMEOUT_S = 60
REQUESTS_A_RECORD = 5
CONNECTIONS = 4  # the broker takes one request of a connection at a time


def main() -> None:
    port, group, rate_per_s = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    chosen, begin_s = random.Random(1), time.monotonic()
    senders = [Sender(port) for _ in range(CONNECTIONS)]
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 50})
    sent = records = 0
    for slot in range(1, 1 << 62):
        frames = [frame(*chosen.choice(KINDS)(chosen, group)) for _ in range(rate_per_s // SLOTS_PER_S)]
        for number, sender in enumerate(senders):
            sender.send(frames[number::CONNECTIONS])
        for _ in frames[::REQUESTS_A_RECORD]:
            producer.produce(CLIENT_TOPIC, nonsense(chosen, group), chosen.randbytes(8))
            records += 1
        producer.poll(0)
        sent += len(frames)
        if slot % SLOTS_PER_S == 0:
            answered = sum(sender.answered for sender in senders)
            print(json.dumps({"sent": sent, "answered": answered, "records": records}), flush=True)
        time.sleep(max(0.0, begin_s + slot / SLOTS_PER_S - time.monotonic()))


class Sender:
    """One connection, with a thread that reads and drops its answers; the broker answers in order, so none may wait."""

    def __init__(self, port: int) -> None:
        self.answered = 0
        self._connection = socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S)
        threading.Thread(target=self._drop, daemon=True).start()

    def send(self, frames: list[bytes]) -> None:
        self._connection.sendall(b"".join(frames))

    def _drop(self) -> None:
        with self._connection.makefile("rb") as answers:
            while head := answers.read(4):
                answers.read(*struct.unpack(">i", head))
                self.answered += 1


def frame(api: int, version: int, client_id: str, body: bytes) -> bytes:
    return requests.sized(struct.pack(">hhi", api, version, 1) + requests.string(client_id) + body)


def refused_join(chosen: random.Random, group: str) -> tuple[int, int, str, bytes]:
    """Answered 26, 25, 24 or 23."""
    strange = strange_text(chosen)
    body = chosen.choice(
        (
            requests.join_group(group, session_timeout_ms=chosen.choice((0, 1, 2**31 - 1))),
            requests.join_group(group, member_id=strange),
            requests.join_group(""),
            requests.join_group(group, metadata=chosen.randbytes(2_000), protocol_type="strange"),
        )
    )
    return requests.JOIN_GROUP, 4, strange, body


def strange_join(chosen: random.Random, _group: str) -> tuple[int, int, str, bytes]:
    """Answered 79: a group with a pending member, which ends with the member's session."""
    name = f"stranger-{chosen.randrange(JOINED_STRANGERS)}{STRANGE}"
    return requests.JOIN_GROUP, 4, strange_text(chosen), requests.join_group(name, session_timeout_ms=6_000)


def forged_probe(chosen: random.Random, _group: str) -> tuple[int, int, str, bytes]:
    digits = chosen.choice(("1" * 5_000, "-1", str(2**63), str(chosen.randrange(10**9)), "x", ""))
    return LIST_GROUPS, 4, chosen.choice(("group-monitor-probe", f"probe-{digits}")), list_groups(f"probe-{digits}")


def list_groups(state: str) -> bytes:
    """ListGroups, version 3 and more, is flexible: compact arrays and strings, tagged fields."""
    data = state.encode()
    length = len(data) + 1
    varint = bytes((length & 0x7F | 0x80, length >> 7)) if length > 0x7F else bytes((length,))
    return b"\x00\x02" + varint + data + b"\x00"  # the header's tags, one state, the body's tags


def long_id(chosen: random.Random, _group: str) -> tuple[int, int, str, bytes]:
    """Answered 25: an unknown group with an id as long as Kafka accepts; only one in ten, because of its cost."""
    size = LONG if chosen.random() < 0.1 else 40
    name = requests.string(chosen.choice("abcdef") * size + str(chosen.randrange(STRANGERS)))
    api = chosen.choice((HEARTBEAT, LEAVE_GROUP))
    rest = requests.string("nobody") if api == LEAVE_GROUP else struct.pack(">i", 1) + requests.string("nobody")
    return api, 0, strange_text(chosen), name + rest


def strange_member(chosen: random.Random, group: str) -> tuple[int, int, str, bytes]:
    """Answered 25: a heartbeat in the live group for a member that it never had."""
    member = requests.string(f"live-{chosen.randrange(STRANGERS)}-{strange_text(chosen)}")
    return HEARTBEAT, 0, "live", requests.string(group) + struct.pack(">i", chosen.randrange(-1, 1_000)) + member


def strange_text(chosen: random.Random) -> str:
    return "".join(chosen.choices(STRANGE, k=chosen.randrange(1, 40)))


def nonsense(chosen: random.Random, group: str) -> bytes:
    """Random bytes, half a report, a report about nobody, or a line of a request log that no broker wrote."""
    return chosen.choice(tuple(_nonsense(chosen, group)))


def _nonsense(chosen: random.Random, group: str) -> Iterator[bytes]:
    report = {"group_monitor_reporter": 1, "group": group, "member_id": strange_text(chosen), "instance_id": None}
    report |= {"client_id": "live", "poll_age_ms": chosen.choice((-1, 10**30, 1)), "max_poll_interval_ms": 1}
    text = json.dumps(report).encode()
    yield from (chosen.randbytes(chosen.randrange(1, 2_000)), text, text[: len(text) // 2], b"[" * 1_000)
    yield b'Completed request:{"requestHeader":{"requestApiKeyName":"HEARTBEAT","clientId":"live"}}'


KINDS = (refused_join, strange_join, forged_probe, long_id, strange_member)


if __name__ == "__main__":
    main()
