"""Writes the sample report of `docs/audit.md`: `python -m docs.generate.audit_sample`.

A broker with five groups, four of them set up to be in trouble; then `group-monitor audit`, as a user runs it.
"""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from kafka import KafkaAdminClient, KafkaConsumer

from streaming.embedded import EmbeddedCluster

PAGE = Path(__file__).parents[1] / "audit.md"
SAMPLE = re.compile(r"(?<=```markdown\n)# Consumer groups of .*?(?=```)", re.DOTALL)
WAIT_S = 60.0
ENDLESS_MS = 2_147_483_647
RETURNS = 4


def report() -> str:
    """Set it up, and return what the command prints."""
    properties = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}
    with EmbeddedCluster(telemetry=False, create_telemetry_topic=False, properties=properties) as cluster:
        servers = cluster.bootstrap_servers
        for topic, partitions in (("letters", 2), ("invoices", 1), ("parcels", 4), ("orders", 2)):
            cluster.create_topic(topic, partitions=partitions)
        with ExitStack() as stack:
            members = _Members(servers, stack)
            members.start("archive", "invoices", "archive-1", polls=False)
            for number in range(6):
                members.start("shipping", "parcels", f"shipping-{number}")
            members.start("billing", "orders", "billing-0", max_poll_interval_ms=ENDLESS_MS)
            members.start("orders", "orders", "orders-1", assignors=True)
            for _ in range(RETURNS):
                with ExitStack() as once:
                    _Members(servers, once).start("mail", "letters", "mail-1")
            members.start("mail", "letters", "mail-1")
            with KafkaAdminClient(bootstrap_servers=servers) as admin:
                admin.create_partitions({"invoices": 3})
            time.sleep(3)  # so that its new partitions are known, and every group is stable
            command = [sys.executable, "-m", "streaming.cli", "audit", "--bootstrap-servers", servers]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class _Members:
    """Consumers, each with a thread that polls it until the end."""

    def __init__(self, servers: str, stack: ExitStack) -> None:
        self._servers, self._stack = servers, stack

    def start(
        self, group: str, topic: str, client_id: str, *, polls: bool = True, assignors: bool = False, **more: object
    ) -> None:
        """Return once it has joined; one that does not poll then takes no notice of new partitions."""
        if assignors:
            from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

            more["partition_assignment_strategy"] = [CooperativeStickyAssignor]
        settings = {"heartbeat_interval_ms": 500, "max_poll_interval_ms": 1_800_000, "session_timeout_ms": 60_000}
        where = {"bootstrap_servers": self._servers, "group_id": group, "client_id": client_id}
        consumer = KafkaConsumer(topic, **where, **{**settings, **more})
        self._stack.callback(consumer.close)
        _await(lambda: consumer.poll(timeout_ms=100) is not None and consumer._coordinator._generation.member_id)
        time.sleep(0.5)
        if polls:
            stop = threading.Event()
            thread = threading.Thread(target=_poll, args=(consumer, stop), daemon=True)
            thread.start()
            self._stack.callback(thread.join)
            self._stack.callback(stop.set)


def _poll(consumer: KafkaConsumer, stop: threading.Event) -> None:
    while not stop.is_set():
        consumer.poll(timeout_ms=100)


def _await(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a member did not join")


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(SAMPLE.sub(lambda _: report(), text), encoding="utf-8")


if __name__ == "__main__":
    main()
