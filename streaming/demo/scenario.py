"""The scenario: four groups of real consumers; members are killed, stalled and redeployed, and one hangs for good."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from streaming.demo.child import Child, DemoError
from streaming.demo.consumer import CONFLUENT, CONFLUENT_848, KAFKA_PYTHON
from streaming.demo.screen import Screen
from streaming.demo.setting import MAX_POLL_INTERVAL_MS, SESSION_TIMEOUT_MS, Setting
from streaming.demo.stop import Stop
from streaming.demo.verdict import OK, POLL_EXCEEDED, Left, Row, judge
from streaming.embedded.truth import SESSION_EXPIRED, read_truth

GROUPS: Final = {
    "orders": (KAFKA_PYTHON, 3),
    "payments": (CONFLUENT, 3),
    "shipping": (CONFLUENT_848, 2),
    "invoices": (CONFLUENT, 2),
}
"""Group -> the client of its consumers, and how many there are."""
HANGING: Final = "invoices"
"""The group with a consumer that hangs for good. Only its pushed metrics distinguish it from one that was closed."""
HANGING_POLL_INTERVAL_MS: Final = 30_000  # a fifth of it is longer than the push interval, 5 s
READY_TIMEOUT_S: Final = 300.0  # Spark may need that long on a busy machine
ALERT_TIMEOUT_S: Final = 60.0
QUIET_S: Final = 2 * SESSION_TIMEOUT_MS / 1000
CLOSING_TIMEOUT_S: Final = 60.0
STALL_S: Final = MAX_POLL_INTERVAL_MS / 1000 + 8
FOR_GOOD_S: Final = 86_400
LOOK_S: Final = 0.5


class Scenario:
    """One run of the demo. Every wait updates the screen; one that takes too long ends and says what it waited for."""

    def __init__(self, setting: Setting, screen: Screen, stop: Stop) -> None:
        self._setting = setting
        self._screen = screen
        self._stop = stop
        self._consumers: dict[str, Child] = {}
        self._killed: list[tuple[str, str]] = []
        self._left: list[Left] = []
        self._shown = 0
        self._groups: list[dict[str, Any]] = []
        self._look_s = 0.0

    def play(self) -> list[Row]:
        """Play the scenario and return the verdict."""
        self._set_up()
        hangs = self._hang("invoices-2")
        for client_id in ("payments-3", "shipping-2", "orders-3"):
            self._kill(client_id)
        self._stall("orders-1")
        self._redeploy("payments-1")
        self._await_alert(POLL_EXCEEDED, HANGING, hangs)
        self._screen.say(
            "payments-3 is started again, as its supervisor would; waiting for the incidents to close", "bold"
        )
        self._start("payments-3")
        self._await_end()
        return self._verdict()

    def stay(self) -> None:
        """Update the screen until Ctrl-C."""
        while True:
            self._look()
            time.sleep(LOOK_S)

    def _set_up(self) -> None:
        say = self._screen.say
        say("starting a Kafka broker (KRaft, one node, request log into a topic)")
        self._setting.start_broker()
        say(f"broker at {self._setting.cluster.bootstrap_servers}; starting `run` (Spark) and `serve`")
        self._setting.create_topics(*GROUPS)
        self._setting.start_monitor()
        for group, (software, members) in GROUPS.items():
            say(f"group {group}: {members} consumers, {software}")
            for number in range(1, members + 1):
                self._start(f"{group}-{number}")
        self._wait("`serve` answers", lambda: self._setting.ask("/healthz"), READY_TIMEOUT_S)
        say(f"`serve` at {self._setting.url}; waiting until the job has caught up")
        self._wait("/readyz says that the job has caught up", lambda: self._setting.ask("/readyz"), READY_TIMEOUT_S)
        say("caught up; waiting until every member is covered")
        self._wait("every member is seen alive", self._all_alive, READY_TIMEOUT_S)

    def _start(self, client_id: str) -> None:
        group = client_id.rpartition("-")[0]
        software, _ = GROUPS[group]
        limit_ms = HANGING_POLL_INTERVAL_MS if group == HANGING else MAX_POLL_INTERVAL_MS
        self._consumers[client_id] = self._setting.start_consumer(software, group, client_id, limit_ms)

    def _kill(self, client_id: str) -> None:
        group, member_id = self._who(client_id)
        self._screen.say(f"kill -9 {client_id}; its session ends in {SESSION_TIMEOUT_MS / 1000:.0f} s", "bold")
        consumer = self._consumers.pop(client_id)
        self._setting.children.remove(consumer)
        consumer.kill()
        consumer.end()
        self._killed.append((group, member_id))
        self._await_alert(SESSION_EXPIRED, group, member_id)

    def _stall(self, client_id: str) -> None:
        group, member_id = self._who(client_id)
        limit_s = MAX_POLL_INTERVAL_MS / 1000
        self._screen.say(f"{client_id} stops polling; max.poll.interval.ms is {limit_s:.0f} s", "bold")
        self._consumers[client_id].say(f"stall {STALL_S}")
        self._left.append(Left(group, member_id, stalled=True))
        self._await_alert(POLL_EXCEEDED, group, member_id)

    def _hang(self, client_id: str) -> str:
        """Let a consumer hang for good, without waiting for the alert; return its member id."""
        group, member_id = self._who(client_id)
        limit_s = HANGING_POLL_INTERVAL_MS / 1000
        self._screen.say(f"{client_id} hangs for good; it will leave in {limit_s:.0f} s without a reason", "bold")
        self._consumers.pop(client_id).say(f"stall {FOR_GOOD_S}")
        self._left.append(Left(group, member_id, stalled=True))
        return member_id

    def _redeploy(self, client_id: str) -> None:
        group, member_id = self._who(client_id)
        self._screen.say(
            f"{client_id} is redeployed: closed properly and started again; there must be no alert", "bold"
        )
        consumer = self._consumers.pop(client_id)
        self._setting.children.remove(consumer)
        consumer.say("close")
        self._wait(f"{client_id} has closed", lambda: not consumer.running, ALERT_TIMEOUT_S)
        consumer.end()
        self._left.append(Left(group, member_id, stalled=False))
        self._start(client_id)
        self._wait(f"{client_id} is a member again", lambda: self._is_alive(client_id), ALERT_TIMEOUT_S)
        self._screen.say(f"{client_id} is back as {self._who(client_id)[1]}")

    def _await_end(self) -> None:
        """Wait until the incidents have closed, and long enough for a false alert about the redeployed member."""
        quiet_s = time.monotonic() + QUIET_S
        self._wait(
            "all incidents are closed",
            lambda: time.monotonic() > quiet_s and self._setting.ask("/api/v1/incidents?state=open") == [],
            CLOSING_TIMEOUT_S,
            required=False,
        )

    def _verdict(self) -> list[Row]:
        truth = read_truth({f"broker-{node.node_id}": [node.log_path] for node in self._setting.cluster.nodes})
        return judge(truth, self._setting.webhook.alerts, self._killed, self._left)

    def _await_alert(self, rule: str, group: str, member_id: str) -> None:
        def delivered() -> bool:
            return any(
                (alert["transition"], alert["rule"], alert["group"], alert["member_id"])
                == ("opened", rule, group, member_id)
                for alert in self._setting.webhook.alerts
            )

        self._wait(f"{rule} about {member_id}", delivered, ALERT_TIMEOUT_S, required=False)

    def _wait(self, what: str, done: Callable[[], object], timeout_s: float, *, required: bool = True) -> None:
        """Wait and update the screen. After the timeout raise `DemoError` if `required`, else only say so."""
        end_s = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > end_s:
                problem = f"waited {timeout_s:.0f} s without success: {what}"
                if required:
                    raise DemoError(problem)
                self._screen.say(problem, "bold red")
                return
            for child in self._setting.children:
                child.require_running()
            self._look()
            time.sleep(LOOK_S)
        self._look()

    def _look(self) -> None:
        """Show new alerts and the state of the groups; stop if the demo has been asked to."""
        self._stop.obey()
        alerts = self._setting.webhook.alerts
        for alert in alerts[self._shown :]:
            self._screen.alert(alert)
            self._shown += 1
        self._groups = self._setting.ask("/api/v1/groups") or []
        self._screen.update(self._groups, self._setting.ask("/api/v1/incidents?state=open") or [])

    def _members(self) -> Iterable[dict[str, Any]]:
        return (member for group in self._groups if group["state"] == "Stable" for member in group["members"])

    def _is_alive(self, client_id: str) -> bool:
        told = self._consumers[client_id].told.get("member_id")
        return any((m["member_id"], m["liveness"]) == (told, "alive") for m in self._members())

    def _all_alive(self) -> bool:
        return all(map(self._is_alive, self._consumers))

    def _who(self, client_id: str) -> tuple[str, str]:
        return client_id.rpartition("-")[0], str(self._consumers[client_id].told["member_id"])


def all_well(rows: Iterable[Row]) -> bool:
    """Return whether no alert is missing, extra or off."""
    return all(row.verdict == OK for row in rows)
