"""Random faults for minutes while consumers commit in all the ways that matter, and lag is judged by the real `run`.

    python -m tests.e2e.lag_chaos --seconds 900 --nodes 3 --seed 7 --out DIR      (`make lag-chaos`)

Groups are stuck, paused, idle, slow, in batches of a minute, of KIP-848, or without members (`lag_world.STUCK` and
`OTHERS`). Three things are required; the exit code is 1 if one fails:

- Offsets: at quiet points the lag of every partition is what the brokers say when asked directly (`lag_truth`).
- Stuck: a partition that its owner reads but no longer commits is named, with its member, within three of its usual
  intervals and 30 s. Time starts again at a rebalance, and at an outage of brokers (until all partitions have a
  leader that answers, and one more round of end offsets).
- Nothing false: no lag incident reports anything else, except that the slow group's lag grows.

`NAME.lag.json` has all that is compared.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from threading import Event, Lock, Thread
from typing import Any

from coordinator_model.rules.lag_growing import LAG_GROWING
from coordinator_model.rules.offset_rewound import OFFSET_REWOUND
from coordinator_model.rules.offsets_lost import OFFSETS_LOST
from coordinator_model.rules.partition_stalled import PARTITION_STALLED
from tests.e2e.clients import Client
from tests.e2e.lag_truth import Comparison
from tests.e2e.lag_world import OTHERS, STUCK, Cast, LagWorld

ALLOWED_S = 30.0
ROUND_MS = 10_000
LATE_S = 60.0
"""How long a stall is waited for after its time, to tell late from never."""
RECOVERY_S = 120.0
CALM_AFTER_S = 60.0
"""Faults stop while stalls have been waited for so long: otherwise time would start again for ever."""
RULES = tuple(rule.id for rule in (PARTITION_STALLED, LAG_GROWING, OFFSET_REWOUND, OFFSETS_LOST))


@dataclass
class Episode:
    """A partition that is stuck for some time, and when the monitor named it."""

    group: str
    topic: str
    partition: int
    interval_ms: int
    """Its usual interval between commits, according to its clients."""
    stuck_ms: int
    owners: list[str] = field(default_factory=list)
    """Its owners meanwhile."""
    from_ms: int = 0
    """From when the time counts."""
    named_ms: int = 0
    named: str = ""
    unstuck_ms: int = 0
    closed_ms: int = 0
    wrong: str = ""

    @property
    def limit_ms(self) -> int:
        """By when it has to be named."""
        return round(self.from_ms + 3 * self.interval_ms + 1_000 * ALLOWED_S)


class Trouble:
    """What happens to clients and brokers, one fault at a time, and since when nothing has happened."""

    def __init__(self, world: LagWorld, random: Random, stop: Event) -> None:
        self._world, self._random, self._stop = world, random, stop
        self._lock = Lock()
        self._since_ms: dict[str, int] = {}
        """By group; "" is the brokers."""
        self._hired = 0
        self.calm = Event()
        self.failure: BaseException | None = None

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Let nothing happen for a while."""
        with self._lock:
            yield

    def restart(self, group: str) -> None:
        """Start the time of a group again; "": of all."""
        self._since_ms[group] = now_ms()

    def since_ms(self, group: str) -> int:
        """Return since when nothing has happened to a group: no fault, no other assignment."""
        told = [
            event["at_ms"]
            for client in self._world.told_by(group)
            for event in list(client.events)
            if event["event"] in {"assigned", "revoked"}
        ]
        return max(self._since_ms.get(group, 0), self._since_ms.get("", 0), *told)

    def run(self) -> None:
        """Cause faults until `stop`."""
        try:
            self._run()
        except BaseException as error:
            self.failure = error
            raise

    def _run(self) -> None:
        faults: list[tuple[int, Callable[[], None]]] = [
            (3, self._kill),
            (2, self._freeze),
            (2, self._redeploy),
            (2, self._scale),
            (3, self._trouble_broker),
        ]
        while not self._stop.wait(self._random.uniform(3, 12)):
            if self.calm.is_set():
                continue
            (fault,) = self._random.choices([f for _, f in faults], [weight for weight, _ in faults])
            with self._lock:
                fault()

    def _cast(self) -> Cast:
        return self._random.choice(self._world.casts)

    @contextmanager
    def _changing(self, group: str) -> Iterator[None]:
        self.restart(group)
        try:
            yield
        finally:
            self.restart(group)

    def _kill(self) -> None:
        cast = self._cast()
        with self._changing(cast.group):
            client = self._random.choice(self._world.living(cast.group))
            client.kill()
            self._stop.wait(self._random.choice((0.2, 3, 9)))
            self._again(client)

    def _freeze(self) -> None:
        cast = self._cast()
        with self._changing(cast.group):
            client = self._random.choice(self._world.living(cast.group))
            client.freeze()
            self._stop.wait(self._random.choice((3, 11)))
            client.thaw()

    def _redeploy(self) -> None:
        cast = self._cast()
        with self._changing(cast.group):
            for client in self._world.living(cast.group):
                client.close()
                self._stop.wait(self._random.choice((0.5, 2)))
                client.end()
                self._again(client)

    def _scale(self) -> None:
        """Start one more client, and close it again."""
        cast = self._random.choice([cast for cast in self._world.casts if cast.software != "simple"])
        with self._changing(cast.group):
            self._hired += 1
            before = self._world.living(cast.group)[0]
            more = self._world.hire(cast, f"{cast.group}-more-{self._hired}", before.spec.stuck)
            self._stop.wait(self._random.uniform(6, 14))
            more.close()
            self._stop.wait(1)
            more.end()

    def _again(self, client: Client) -> None:
        self._world.restart(client, stuck=stuck_now(self._world, client.spec.group))

    def _trouble_broker(self) -> None:
        """Cause a fault of a broker; every other time it is the coordinator of a stuck group."""
        world = self._world
        node = self._random.choice(world.cluster.nodes)
        if self._random.random() < 0.5:
            node = world.cluster.node(world.coordinator(self._random.choice(STUCK).group))
        what, seconds = self._random.choice((("stop", 2), ("kill", 1), ("kill", 12), ("pause", 4), ("pause", 12)))
        with self._changing(""):
            world.note_action(f"{what} broker-{node.node_id} for {seconds} s")
            if what == "pause":
                node.pause()
                self._stop.wait(seconds)
                node.resume()
            else:
                node.stop() if what == "stop" else node.kill()
                self._stop.wait(seconds)
                node.start()
            world.note_action(f"broker-{node.node_id} is back")
            world.brokers.answer({cast.topic: cast.partitions for cast in world.casts})
        self._since_ms[""] += ROUND_MS


def stuck_now(world: LagWorld, group: str) -> tuple[tuple[str, int], ...]:
    """Return the partitions that a client of a group must not commit if it starts now."""
    return tuple(world.stuck.get(group, ()))


class Director:
    """Lets partitions be stuck, one per group, and waits until each is named."""

    def __init__(self, world: LagWorld, trouble: Trouble, random: Random, stop: Event) -> None:
        self._world, self._trouble, self._random, self._stop = world, trouble, random, stop
        self.episodes: list[Episode] = []
        self.comparisons: list[dict[str, Any]] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Run until `stop`, and until the last episode is over."""
        try:
            while not self._stop.is_set():
                self._scene()
        except BaseException as error:
            self.failure = error
            raise

    def _scene(self) -> None:
        episodes = [self._stick(cast) for cast in STUCK]
        self._await_all(episodes)
        self._stop.wait(self._random.uniform(2, 20))
        self._compare()
        self._unstick(episodes)
        self._await_closed(episodes)
        self._compare()

    def _stick(self, cast: Cast) -> Episode:
        partition = self._random.randrange(cast.partitions)
        until(lambda: self._world.usual_interval_ms(cast, partition), 120)
        with self._trouble.quiet():
            self._world.stick(cast, partition)
        interval_ms = self._world.usual_interval_ms(cast, partition) or 0
        episode = Episode(cast.group, cast.topic, partition, interval_ms, now_ms())
        self.episodes.append(episode)
        return episode

    def _await_all(self, episodes: list[Episode]) -> None:
        began_s = time.monotonic()
        while waiting := [episode for episode in episodes if not (episode.named_ms or episode.wrong)]:
            for episode in waiting:
                self._look(episode)
            if time.monotonic() > began_s + CALM_AFTER_S:
                self._trouble.calm.set()
            time.sleep(0.5)
        self._trouble.calm.clear()

    def _look(self, episode: Episode) -> None:
        world = self._world
        cast = next(cast for cast in STUCK if cast.group == episode.group)
        episode.from_ms = max(
            self._trouble.since_ms(episode.group),
            *world.commits(cast, episode.partition)[-1:],
            episode.stuck_ms - 5_000,
        )
        self._note_owners(episode)
        for incident in world.stalls(episode.group):
            if [episode.topic, episode.partition] in incident["partitions"]:
                episode.named_ms, episode.named = now_ms(), incident["member_id"]
                if episode.named_ms > episode.limit_ms:
                    episode.wrong = f"named {(episode.named_ms - episode.limit_ms) / 1_000:.1f} s too late"
                if cast.software != "simple" and incident["member_id"] not in episode.owners[-1:]:
                    episode.wrong = f"{incident['member_id']} is named, and {episode.owners[-1:]} has it"
                return
        if now_ms() > episode.limit_ms + 1_000 * LATE_S:
            episode.wrong = "not named"

    def _note_owners(self, episode: Episode) -> None:
        place = episode.group, episode.topic, episode.partition
        episode.owners = self._world.owners(*place, since_ms=episode.stuck_ms - 1_000)

    def _unstick(self, episodes: list[Episode]) -> None:
        with self._trouble.quiet():
            for episode in episodes:
                self._note_owners(episode)  # a rebalance may have given it to another member since it was named
                self._world.unstick(episode.group)
                episode.unstuck_ms = now_ms()

    def _await_closed(self, episodes: list[Episode]) -> None:
        deadline = time.monotonic() + RECOVERY_S
        while open_now := [episode for episode in episodes if not (episode.closed_ms or episode.wrong)]:
            for episode in open_now:
                if not self._world.stalls(episode.group):
                    episode.closed_ms = now_ms()
                elif time.monotonic() > deadline:
                    episode.wrong = f"open {RECOVERY_S:.0f} s after it was committed again"
            time.sleep(0.5)

    def _compare(self) -> None:
        with self._trouble.quiet():
            self._world.brokers.answer({cast.topic: cast.partitions for cast in self._world.casts})
            self._world.pause_production()
            at_ms, found = now_ms(), self._world.compare()
            self._world.resume_production()
            for cast in STUCK:
                self._trouble.restart(cast.group)  # while no messages come, the other partitions have nothing to commit
        self.comparisons += [{"at_ms": at_ms, **comparison.as_dict()} for comparison in found]
        print(said(at_ms, found), flush=True)


def said(at_ms: int, found: list[Comparison]) -> str:
    """Return how a quiet point went, as text."""
    wrong = [comparison for comparison in found if not comparison.agrees]
    exact = sum(comparison.is_exact for comparison in found)
    lag = sum(c.after.end - c.after.committed for c in found if c.after)
    head = f"{at_ms}: {len(found) - len(wrong)} of {len(found)} partitions agree, {exact} compared exactly; lag {lag:,}"
    return "\n".join([head, *(f"  {comparison}" for comparison in wrong)])


def judge_incidents(incidents: list[dict[str, Any]], episodes: list[Episode]) -> list[str]:
    """Return the lag incidents that report anything but an episode, or that the slow group is slow."""
    return [
        f"{incident['rule']} {incident['subject']}: {incident['summary']}"
        for incident in incidents
        if not (incident["rule"] == LAG_GROWING.id and incident["group"] == "slow")
        and not (incident["rule"] == PARTITION_STALLED.id and any(is_of(incident, episode) for episode in episodes))
    ]


def is_of(incident: dict[str, Any], episode: Episode) -> bool:
    """Tell whether an incident is about an episode, and about nothing else."""
    return (
        incident["group"] == episode.group
        and incident["partitions"] == [[episode.topic, episode.partition]]
        and (incident["member_id"] or "") in episode.owners
        and episode.stuck_ms <= incident["told_ms"]
        and (not episode.unstuck_ms or incident["opened_ms"] <= episode.unstuck_ms)
    )


def lag_chaos(folder: Path, *, seconds: float, nodes: int, seed: int) -> dict[str, Any]:
    """Play `seconds` of random faults; return what was compared."""
    stop = Event()
    with LagWorld(f"lag-chaos-{nodes}-{seed}", folder, nodes=nodes) as world:
        world.job.await_rows("SELECT 1 FROM runs WHERE caught_up")
        world.play(STUCK + OTHERS)
        trouble = Trouble(world, Random(f"{seed}-trouble"), stop)
        director = Director(world, trouble, Random(f"{seed}-stuck"), stop)
        threads = [Thread(target=trouble.run, daemon=True), Thread(target=director.run, daemon=True)]
        for thread in threads:
            thread.start()
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s and all(thread.is_alive() for thread in threads) and world.job.running:
            time.sleep(0.5)
        stop.set()
        for thread in threads:
            thread.join()
        incidents = [incident for rule in RULES for incident in world.incidents(rule)]
    failure = director.failure or trouble.failure
    told = {
        "comparisons": director.comparisons,
        "episodes": [asdict(episode) for episode in director.episodes],
        "incidents": incidents,
        "false": judge_incidents(incidents, director.episodes),
        "failure": failure and repr(failure),
        "faults": Counter(action["action"].split(" ")[0] for action in world.played.actions),
    }
    (folder / f"{world.played.name}.lag.json").write_text(json.dumps(told, indent=1))
    return told


def judge(told: dict[str, Any]) -> bool:
    """Print what was compared; tell whether nothing was wrong."""
    compared, episodes = told["comparisons"], told["episodes"]
    wrong = [row for row in compared if not row["agrees"]]
    points = len({row["at_ms"] for row in compared})
    print("done to clients and brokers:", ", ".join(f"{count} x {name}" for name, count in told["faults"].items()))
    print(
        f"offsets: {len(compared) - len(wrong)} of {len(compared)} partitions agree at {points} quiet points,"
        f" {sum(row['exact'] for row in compared)} compared exactly"
    )
    late = [episode for episode in episodes if episode["wrong"]]
    waited = sorted(episode["named_ms"] - episode["from_ms"] for episode in episodes if episode["named_ms"])
    spread = (
        f", after {waited[len(waited) // 2] / 1_000:.1f} s at the median, {waited[-1] / 1_000:.1f} s at most"
        if waited
        else ""
    )
    print(f"stuck: {len(waited)} of {len(episodes)} partitions named{spread}; {len(late)} wrong")
    for episode in late:
        print(f"  {episode}")
    print(f"incidents: {dict(Counter(row['rule'] for row in told['incidents']))}; {len(told['false'])} false")
    print(*(f"  {text}" for text in told["false"]), sep="\n")
    if told["failure"]:
        print("the run broke off:", told["failure"])
    return bool(compared and waited) and not (wrong or late or told["false"] or told["failure"])


def until(look: Callable[[], Any], patience_s: float) -> Any:
    """Look until there is something, and return it."""
    deadline = time.monotonic() + patience_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing within {patience_s} s")
        time.sleep(0.2)
    return found


def now_ms() -> int:
    """Return this instant."""
    return time.time_ns() // 1_000_000


def main() -> None:
    """Play, print, exit."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.lag_chaos")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    print(f"chaos of lag for {options.seconds:.0f} s on {options.nodes} brokers, seed {options.seed}", flush=True)
    if (options.out / "monitor.db").exists():
        parser.error(f"{options.out} holds an earlier run, whose incidents would count: choose another folder")
    sys.exit(not judge(lag_chaos(options.out, seconds=options.seconds, nodes=options.nodes, seed=options.seed)))


if __name__ == "__main__":
    main()
