"""Random faults for minutes: mixed clients, both protocols, one broker or three, brokers among the victims.

    python -m tests.e2e.chaos --seconds 900 --nodes 3 --seed 7 --java --out DIR      (`make chaos`)

Then the monitor is judged (`compare.judge`): its verdicts against the brokers' own logs, its replica at quiet points
against what the brokers described; exit 1 on a difference. The same seed draws the same faults; what the cluster makes
of them differs from run to run.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from tests.e2e import tiers
from tests.e2e.clients import Client, Spec, java_compiles
from tests.e2e.compare import judge
from tests.e2e.quiet import watch
from tests.e2e.tiers import REQUEST_LOG, stripped
from tests.e2e.world import Played, World

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_LIMIT_MS = 10_000
HANG_S = 30.0  # a consumer that holds no assignment for so long is restarted, as a liveness probe would
GROUPS = (
    ("kafka-python", 3, False),
    ("confluent", 3, False),
    ("confluent-848", 3, False),
    ("kafka-python", 3, True),
    ("confluent", 2, True),
    ("confluent-848", 2, True),
)
JAVA_GROUPS = (("java", 2, False), ("java-848", 2, False))


class Crew:
    """The consumers of one group and what happens to them.

    `brokers` is held during a fault of a broker: there is one at a time.
    """

    def __init__(
        self, world: World, software: str, count: int, *, static: bool, random: Random, stop: Event, brokers: Lock
    ) -> None:
        self._world, self._random, self._stop, self._brokers = world, random, stop, brokers
        self.group = software + "-static" * static
        self._topic = world.topic(f"topic-{self.group}")
        self._static = static
        self._software = software
        self._hired = 0
        self._doubtful: dict[int, float] = {}
        self.clients = [self._hire() for _ in range(count)]

    def _hire(self) -> Client:
        self._hired += 1
        return self._world.start(
            Spec(
                self._software,
                self.group,
                f"{self.group}-{self._hired}",
                (self._topic,),
                session_timeout_ms=self._random.choice((6_000, 8_000)),
                max_poll_interval_ms=POLL_LIMIT_MS,
                instance_id=f"{self.group}-i{self._hired}" if self._static else None,
                commit=self._random.random() < 0.7,
            )
        )

    def run(self) -> None:
        faults: list[tuple[int, Callable[[], None]]] = [
            (4, self._crash),
            (3, self._freeze),
            (3, self._stall),
            (2, self._redeploy),
            (1, self._scale),
            (1, self._lose_zone),
        ]
        self._stop.wait(8)
        while not self._stop.is_set():
            (fault,) = self._random.choices([f for _, f in faults], [weight for weight, _ in faults])
            fault()
            self._supervise()
            self._stop.wait(self._random.uniform(1, 7))
        for client in self.clients:
            if client.frozen:
                client.thaw()

    def _crash(self) -> None:
        slot = self._random.randrange(len(self.clients))
        self.clients[slot].kill()
        self._stop.wait(self._random.choice((0.2, 3, 9, 14)))
        self.clients[slot] = self._world.restart(self.clients[slot])

    def _freeze(self) -> None:
        client = self._random.choice(self.clients)
        client.freeze()
        self._stop.wait(self._random.choice((2, 4, 7, 11, 16)))
        client.thaw()

    def _stall(self) -> None:
        self._random.choice(self.clients).stall(self._random.choice((4, 8, 13, 20)))

    def _redeploy(self) -> None:
        for slot, client in enumerate(self.clients):
            client.close()
            self._stop.wait(self._random.choice((0.5, 2)))
            client.end()
            self.clients[slot] = self._world.restart(client)

    def _scale(self) -> None:
        if len(self.clients) > 2 and self._random.random() < 0.5:
            client = self.clients.pop()
            client.close()
            self._stop.wait(2)
            client.end()
        elif len(self.clients) < 4:
            self.clients.append(self._hire())

    def _lose_zone(self) -> None:
        """Freeze every member and kill their coordinator: the next one hears nothing of them from its load on."""
        if not self._brokers.acquire(blocking=False):
            return  # another broker has a fault already
        try:
            for client in self.clients:
                client.freeze()
            node = self._world.cluster.node(self._world.coordinator(self.group))
            self._world.note_action(f"kill broker-{node.node_id}, which coordinates the frozen {self.group}")
            node.kill()
            self._stop.wait(self._random.choice((1, 4, 12, 20)))
            node.start()
            self._world.note_action(f"broker-{node.node_id} is back")
        finally:
            self._brokers.release()
            for client in self.clients:
                client.thaw()

    def _supervise(self) -> None:
        now = time.monotonic()
        for slot, client in enumerate(self.clients):
            if client.assigned:
                self._doubtful.pop(id(client), None)
            elif not client.running or now - self._doubtful.setdefault(id(client), now) > HANG_S:
                client.end()
                self.clients[slot] = self._world.restart(client)


def trouble_brokers(world: World, random: Random, stop: Event, brokers: Lock) -> None:
    """Pause, restart or kill a broker now and then; the next fault waits until all are back."""
    stop.wait(25)
    while not stop.is_set():
        node = random.choice(world.cluster.nodes)
        what, seconds = random.choice((("pause", 4), ("pause", 12), ("stop", 2), ("kill", 1), ("kill", 12)))
        with brokers:
            world.note_action(f"{what} broker-{node.node_id} for {seconds} s")
            if what == "pause":
                node.pause()
                stop.wait(seconds)
                node.resume()
            else:
                node.stop() if what == "stop" else node.kill()
                stop.wait(seconds)
                node.start()
            world.note_action(f"broker-{node.node_id} is back")
        stop.wait(random.uniform(20, 35))


def chaos(
    folder: Path, *, seconds: float, nodes: int, seed: int, java: bool = False, coordinator_log: bool = False
) -> Played:
    """Play `seconds` of random faults and leave a capture of them."""
    stop, brokers = Event(), Lock()
    with World(f"chaos-{nodes}-{seed}", folder, nodes=nodes, coordinator_log=coordinator_log) as world:
        crews = [
            Crew(world, software, count, static=static, random=Random(f"{seed}-{number}"), stop=stop, brokers=brokers)
            for number, (software, count, static) in enumerate(GROUPS + JAVA_GROUPS * java)
        ]
        threads = [Thread(target=crew.run) for crew in crews]
        threads.append(Thread(target=trouble_brokers, args=(world, Random(f"{seed}-brokers"), stop, brokers)))
        threads.append(Thread(target=watch, args=(world, stop)))
        for thread in threads:
            thread.start()
        stop.wait(seconds)
        stop.set()
        for thread in threads:
            thread.join()
        time.sleep(9)  # the last deadlines pass inside the capture
    return world.played


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.chaos")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--java", action="store_true", help="Java consumers too (more memory and CPU time)")
    parser.add_argument(
        "--coordinator-log",
        action="store_true",
        help="Record the coordinator's own log too, and judge each source alone",
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.java and not java_compiles():
        parser.error("this Java has no compiler, and the Java consumers are compiled here")
    print(f"chaos for {options.seconds:.0f} s on {options.nodes} brokers, seed {options.seed}", flush=True)
    played = chaos(
        options.out,
        seconds=options.seconds,
        nodes=options.nodes,
        seed=options.seed,
        java=options.java,
        coordinator_log=options.coordinator_log,
    )
    faults = Counter(action["action"].split(" ")[0] for action in played.actions)
    print("done to clients and brokers:", ", ".join(f"{count} x {name}" for name, count in faults.most_common()))
    alone = not options.coordinator_log or tiers.judge(played)
    # The coordinator's log is part of the truth here, so the model does not read it.
    judged = stripped(played, REQUEST_LOG) if options.coordinator_log else played
    sys.exit(not (judge(judged) and alone and played.moments))


if __name__ == "__main__":
    main()
