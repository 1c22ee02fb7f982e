"""Records the capture of `replay --sample`: `python -m streaming.demo.sample streaming/demo/sample.jsonl.gz`.

It shows what the demo shows, without Spark: one consumer is killed, one stalls (with the reporter), one is redeployed.
Another one no longer processes one of its partitions. The capture is shipped as it was recorded. Record it again only
to change what the sample shows.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from streaming.demo.child import Child, DemoError
from streaming.demo.consumer import CONFLUENT, CONFLUENT_848, KAFKA_PYTHON
from streaming.demo.setting import Setting
from streaming.embedded.truth import LEFT, SESSION_EXPIRED, TruthEvent, read_truth

TIMEOUT_S: Final = 90.0
QUIET_S: Final = 4.0
STALL_S: Final = 16.0
AFTERMATH_S: Final = 24.0  # enough to close all other incidents, and to call a partition stalled
MEMBERS: Final = {
    "orders": (KAFKA_PYTHON, ("orders-1", "orders-2")),
    "payments": (CONFLUENT, ("payments-1", "payments-2")),
    "shipping": (CONFLUENT_848, ("shipping-1", "shipping-2")),
    "invoices": (CONFLUENT, ("invoices-1",)),
}


def record(out: Path) -> None:
    """Play the scenario and record it, from the cluster's first record on."""
    with Setting() as setting:
        setting.start_broker()
        with _recording(setting, out):
            setting.create_topics(*MEMBERS)
            members = {
                client_id: setting.start_consumer(software, group, client_id)
                for group, (software, client_ids) in MEMBERS.items()
                for client_id in client_ids
            }
            _await(lambda: all(member.told for member in members.values()), "members")
            time.sleep(QUIET_S)  # heartbeats, so that the members are covered

            killed = members["payments-2"]
            killed.kill()
            _await_log(setting, SESSION_EXPIRED, killed)
            members["invoices-1"].say("pause")

            stalled = members["orders-1"]
            stalled.say(f"stall {STALL_S}")
            redeployed = members["shipping-1"]
            redeployed.say("close")
            _await_log(setting, LEFT, redeployed)
            again = setting.start_consumer(CONFLUENT_848, "shipping", "shipping-1")
            _await(lambda: again.told, "shipping-1 to come back")
            _await_log(setting, LEFT, stalled)
            time.sleep(AFTERMATH_S)


@contextmanager
def _recording(setting: Setting, out: Path) -> Iterator[None]:
    command = ("capture", "--bootstrap-servers", setting.cluster.bootstrap_servers, "--from-beginning")
    recorder = Child("capture", setting.folder, "streaming.demo.stdin_guard", *command, "--out", str(out))
    try:
        yield
        recorder.require_running()
    finally:
        recorder.ask_to_stop()
        recorder.end()


def _await_log(setting: Setting, kind: str, member: Child) -> TruthEvent:
    """Wait until the broker's log has an event of this kind about the member."""

    def said() -> TruthEvent | None:
        truth = read_truth({"broker-1": [setting.cluster.node(1).log_path]})
        return next((e for e in truth if (e.kind, e.member_id) == (kind, member.told["member_id"])), None)

    found = _await(said, f"{kind} of {member.name}")
    assert isinstance(found, TruthEvent)  # noqa: S101 # what `said` returns
    print(f"{kind}: {found.member_id} at {found.at_ms}", flush=True)
    return found


def _await(done: Callable[[], object], what: str) -> object:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not (found := done()):
        if time.monotonic() > deadline_s:
            raise DemoError(f"waited {TIMEOUT_S:.0f} s for {what}, without success")
        time.sleep(0.3)
    return found


if __name__ == "__main__":
    record(Path(sys.argv[1]))
