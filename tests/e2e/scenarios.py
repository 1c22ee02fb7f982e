"""The scripted scenarios: each runs on one cluster, several groups at once, and leaves a capture and its truth.

    python -m tests.e2e.scenarios OUT_FOLDER [NAME …]

A script waits for events that the consumers report or the brokers log. It sleeps only for the length of a fault.
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from streaming.embedded.truth import SESSION_EXPIRED
from tests.e2e.clients import Client, Spec, java_compiles
from tests.e2e.world import Played, World

SHORT_FREEZE_S = 2.5  # well inside every session timeout used here
LONG_FREEZE_S = 11.0  # well beyond
STALL_S = 14.0
POLL_LIMIT_MS = 8_000
START_S = 20.0  # the longest that a consumer's start may take on a busy machine


def together(*scripts: Callable[[], object]) -> None:
    """Run the scripts of several groups at the same time; the first one that fails fails the scenario."""
    with ThreadPoolExecutor(len(scripts)) as pool:
        for script in [pool.submit(script) for script in scripts]:
            script.result()


def freeze_for(client: Client, seconds: float) -> None:
    client.freeze()
    time.sleep(seconds)
    client.thaw()


def kill_and_freeze(world: World, software: str, group: str) -> None:
    """Kill one member, freeze one for less than its session timeout, then for longer; the last one leaves properly."""
    a, b, c = world.group(software, group, 3, world.topic(f"topic-{group}"))
    b.kill()
    world.await_expiry(b)
    world.await_settled(a, c)
    freeze_for(c, SHORT_FREEZE_S)
    world.await_settled(a, c)
    told = len(c.events)
    freeze_for(c, LONG_FREEZE_S)
    world.await_expiry(c)
    c.wait_for("assigned", since=told)
    world.await_settled(a, c)
    c.close()
    c.wait_for("closed")
    world.await_settled(a)


def kill_while_joins_are_parked(world: World, software: str, group: str) -> None:
    """Let a slow member keep the join phase open; a parked member dies, and next time the slow one itself."""
    topic = world.topic(f"topic-{group}")
    a, b, c = world.group(software, group, 3, topic)
    told = len(c.events)
    a.stall(9)
    d = world.start(Spec(software, group, f"{group}-late", (topic,)))
    c.wait_for("revoked", since=told)
    time.sleep(1)  # its join is on its way now; nothing shows when the broker has parked it
    c.kill()
    world.await_expiry(c)
    world.await_settled(a, b, d)
    told = len(d.events)
    a.stall(30)
    a.wait_for("stalled", since=len(a.events))
    e = world.start(Spec(software, group, f"{group}-later", (topic,)))
    d.wait_for("revoked", since=told)
    a.kill()
    world.await_expiry(a)
    world.await_settled(b, d, e)


def miss_the_phases(world: World, group: str) -> None:
    """Let members heartbeat but not rejoin in time, and let one join and never sync: rebalance timeouts.

    On a busy machine the last one may be killed after it has synced: then its session ends. The log tells which.
    """
    topic = world.topic(f"topic-{group}")
    settings = {"session_timeout_ms": 12_000, "max_poll_interval_ms": POLL_LIMIT_MS}
    a, b, c = world.group("kafka-python", group, 3, topic, stubborn=True, **settings)
    stalled = len(a.events)
    a.stall(START_S + POLL_LIMIT_MS / 1000)  # beyond the timeout of the rebalance that the newcomer begins
    late = Spec("kafka-python", group, f"{group}-late", (topic,), **settings)
    d = world.start(late)
    world.await_truth("a member that did not rejoin", lambda event: event.kind == "rebalance-timeout")
    a.wait_for("polling", since=stalled)
    a.wait_for("assigned", since=stalled)
    world.await_settled(a, b, c, d)
    told = len(c.events)
    b.stall(6)
    e = world.restart(d)
    c.wait_for("revoked", since=told)
    time.sleep(1)
    c.kill()  # if parked, the join phase ends with it as a member, and it never syncs
    world.await_truth(
        "the end of the member that never synced",
        lambda event: event.kind in ("rebalance-timeout", SESSION_EXPIRED) and event.member_id == c.member_id,
    )
    world.await_settled(a, b, d, e)


def leader_rejoins(world: World, software: str, group: str) -> None:
    """Rebalances that are nobody's fault: partitions are added, so the leader rejoins by itself.

    Not with kafka-python: 3.0.12 now and then never comes back from a rebalance that its own leader asks for.
    """
    topic = world.topic(f"topic-{group}", 3)
    clients = world.group(software, group, 3, topic)
    told = [len(client.events) for client in clients]
    world.add_partitions(topic, 5)
    for client, since in zip(clients, told, strict=True):
        client.wait_for("assigned", since=since)
    world.await_settled(*clients)


def subscription_changes(world: World, group: str) -> None:
    """Let a follower subscribe to one more topic; then the leader sees that topic and rejoins.

    Not with kafka-python: 3.0.12 stops heartbeating when one rebalance follows another at once.
    """
    topic, other = world.topic(f"topic-{group}", 3), world.topic(f"topic-{group}-too", 3)
    clients = world.group("confluent", group, 3, topic)
    told = len(clients[0].events)
    clients[2].subscribe(topic, other)
    clients[0].wait_for("assigned", since=told)
    world.await_settled(*clients)


def static_members(world: World, software: str, group: str) -> None:
    """Restart one by one, crash and be back in time, crash and not be back, and freeze beyond the session timeout."""
    clients = world.group(software, group, 3, world.topic(f"topic-{group}"), static=True)
    for number, client in enumerate(clients):
        client.close()
        client.wait_for("closed")
        clients[number] = world.restart(client)
        clients[number].wait_for("assigned")
    a, b, c = clients
    world.await_settled(a, b, c)
    a.kill()
    if a.spec.kip_848:  # there an instance id stays in use until the session of a crashed member has ended
        world.await_expiry(a)
    a = world.restart(a)
    world.await_settled(a, b, c)
    told = len(b.events)
    freeze_for(b, LONG_FREEZE_S)
    world.await_expiry(b)
    b.wait_for("assigned", since=told)
    world.await_settled(a, b, c)
    c.kill()
    world.await_expiry(c)
    world.await_settled(a, b)


def static_close_without_return(world: World, group: str) -> None:
    """KIP-848: the epoch -2 of a static close restarts no timer; the session ends as if the member had died there."""
    a, b = world.group("confluent-848", group, 2, world.topic(f"topic-{group}"), static=True)
    b.close()
    b.wait_for("closed")
    world.await_expiry(b)
    world.await_settled(a)


def stop_polling(world: World, software: str, group: str) -> None:
    """Let one member work on a message for longer than max.poll.interval.ms, then go on."""
    a, b = world.group(software, group, 2, world.topic(f"topic-{group}"), max_poll_interval_ms=POLL_LIMIT_MS)
    told, member = len(b.events), b.member_id
    b.stall(STALL_S)
    world.await_truth(f"the leave of {member}", lambda event: event.kind == "left" and event.member_id == member)
    b.wait_for("polling", since=told)
    b.wait_for("assigned", since=told)
    world.await_settled(a, b)


def static_stops_polling(world: World, software: str, group: str) -> None:
    """A static member sends no leave: its heartbeats stop at the poll limit and its session ends later."""
    settings = {"static": True, "max_poll_interval_ms": POLL_LIMIT_MS}
    a, b = world.group(software, group, 2, world.topic(f"topic-{group}"), **settings)
    told = len(b.events)
    b.stall(STALL_S + 6)
    world.await_expiry(b)
    b.wait_for("polling", since=told)
    b.wait_for("assigned", since=told)
    world.await_settled(a, b)


def static_polls_again_in_time(world: World, group: str) -> None:
    """KIP-848: a late poll sends epoch -2 and at once epoch 0 with the same member id: no session ends.

    On a busy machine the poll may come after the end of the session. The log tells which of the two happened.
    """
    settings = {"static": True, "max_poll_interval_ms": POLL_LIMIT_MS}
    a, b = world.group("confluent-848", group, 2, world.topic(f"topic-{group}"), **settings)
    told, member = len(b.events), b.member_id
    b.stall(STALL_S)
    b.wait_for("polling", since=told)
    world.await_truth(
        f"{member} replacing itself",
        lambda event: (
            (event.kind, event.detail) == ("replaced", member)
            or (event.kind, event.member_id) == (SESSION_EXPIRED, member)
        ),
    )
    b.wait_for("assigned", since=told)
    world.await_settled(a, b)


def classic(folder: Path) -> Played:
    """Kills, freezes, parked joins, missed phases, leaders that rejoin, leaves, restarts; both protocols."""
    with World("classic", folder) as world:
        together(
            lambda: kill_and_freeze(world, "kafka-python", "python"),
            lambda: kill_and_freeze(world, "confluent", "rdkafka"),
            lambda: kill_and_freeze(world, "confluent-848", "rdkafka848"),
            lambda: kill_while_joins_are_parked(world, "kafka-python", "parked-python"),
            lambda: kill_while_joins_are_parked(world, "confluent", "parked-rdkafka"),
            lambda: leader_rejoins(world, "confluent", "leader-rdkafka"),
            lambda: subscription_changes(world, "subscription"),
        )
    return world.played


def static(folder: Path) -> Played:
    """Static members of every client, slow polls, missed phases."""
    with World("static", folder) as world:
        together(
            lambda: static_members(world, "kafka-python", "static-python"),
            lambda: static_members(world, "confluent", "static-rdkafka"),
            lambda: static_members(world, "confluent-848", "static-rdkafka848"),
            lambda: static_close_without_return(world, "static-gone848"),
            lambda: miss_the_phases(world, "phases"),
            lambda: stop_polling(world, "kafka-python", "poll-python"),
            lambda: stop_polling(world, "confluent", "poll-rdkafka"),
            lambda: stop_polling(world, "confluent-848", "poll-rdkafka848"),
            lambda: static_polls_again_in_time(world, "poll-static848"),
            lambda: static_stops_polling(world, "kafka-python", "static-polls"),
        )
    return world.played


def java(folder: Path) -> Played:
    """What the Java clients do: leave reasons, and KIP-848 from both sides. Nothing if Java has no compiler."""
    with World("java", folder) as world:
        together(
            lambda: stop_polling(world, "java", "poll-java"),
            lambda: stop_polling(world, "java-848", "poll-java848"),
            lambda: kill_and_freeze(world, "java", "java"),
            lambda: kill_and_freeze(world, "java-848", "java848"),
        )
    return world.played


def one_of_each(world: World) -> list[list[Client]]:
    """Start three members of each kind in a group of its own, and wait until they are settled."""
    kinds = (("kafka-python", False), ("confluent", False), ("confluent-848", False), ("kafka-python", True))
    with ThreadPoolExecutor(len(kinds)) as pool:
        started = [
            pool.submit(
                world.group, software, f"{software}{'-static' * is_static}", 3, world.topic(f"t{n}"), static=is_static
            )
            for n, (software, is_static) in enumerate(kinds)
        ]
        return [group.result() for group in started]


def settle(world: World, groups: list[list[Client]]) -> None:
    """Wait until all groups are settled; a consumer that hangs is restarted, as a liveness probe would.

    librdkafka sometimes asks for nothing more after its coordinator, back from a pause, has answered it 25 and 16. Once
    one of its consumers had no partitions four minutes after the broker had restarted; why is not known.
    """
    try:
        world.await_settled(*(client for group in groups for client in group), quiet_s=4, timeout_s=45)
    except TimeoutError:
        for group in groups:
            for slot, client in enumerate(group):
                if not client.assigned:
                    client.end()
                    group[slot] = world.restart(client)
        world.await_settled(*(client for group in groups for client in group), quiet_s=4)


def broker(folder: Path) -> Played:
    """Stop the broker for 12 s, then restart it; shortly before each, kill a member of every group."""
    with World("broker", folder) as world:
        groups = one_of_each(world)
        node = world.cluster.node(1)
        world.note_action("pause broker-1")
        node.pause()
        time.sleep(12)
        node.resume()
        world.note_action("resume broker-1")
        settle(world, groups)
        dead = [group.pop() for group in groups]
        for client in dead:
            client.kill()
        time.sleep(2)  # within their session timeouts
        world.note_action("stop broker-1")
        node.stop()
        node.start()
        world.note_action("started broker-1")
        for client in dead:
            world.await_expiry(client)
        settle(world, groups)
    return world.played


def in_a_rebalance_of(world: World, node_id: int) -> list[Client]:
    """Return a group that this broker coordinates, in a join phase that waits for a member which does not poll."""
    names = (f"rebalancing-{number}" for number in range(1_000))
    group = next(name for name in names if world.coordinator(name) == node_id)
    clients = world.group("confluent", group, 2, world.topic(group), max_poll_interval_ms=60_000)
    clients[0].stall(25)
    newcomer = world.start(replace(clients[0].spec, name=f"{group}-new"))
    world.await_truth(f"a rebalance of {group}", lambda e: e.kind == "rebalance" and e.group == group)
    return [*clients, newcomer]


def failover(folder: Path) -> Played:
    """Three nodes: the coordinator of a group is killed in the middle of a rebalance and comes back; members die."""
    with World("failover", folder, nodes=3) as world:
        groups = one_of_each(world)
        node = world.cluster.node(world.coordinator("kafka-python"))
        groups.append(in_a_rebalance_of(world, node.node_id))
        dead = [group.pop() for group in groups[:-1]]
        for client in dead:
            client.kill()
        time.sleep(2)  # within their session timeouts
        world.note_action(f"kill broker-{node.node_id}")
        node.kill()
        for client in dead:
            world.await_expiry(client)
        settle(world, groups)
        world.note_action(f"start broker-{node.node_id}")
        node.start()
        more = [group.pop() for group in groups]
        for client in more:
            client.kill()
        for client in more:
            world.await_expiry(client)
        settle(world, groups)
    return world.played


SCENARIOS: dict[str, Callable[[Path], Played]] = {
    scenario.__name__: scenario
    for scenario in (classic, static, broker, failover, *([java] if java_compiles() else []))
}


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(SCENARIOS)
    for name in names:
        started = time.monotonic()
        played = SCENARIOS[name](folder)
        expiries = [event for event in played.truth if event.kind == SESSION_EXPIRED]
        print(f"{name}: {time.monotonic() - started:.0f} s, {len(expiries)} expiries -> {played.capture}", flush=True)


if __name__ == "__main__":
    main()
