"""What each rule of an audit means and what helps, in one line each; docs/audit.md and docs/rules say more."""

from typing import Final

MEANINGS: Final = {
    "partition-unowned": (
        "a partition of a topic that the group subscribes to is read by nobody",
        "wait five minutes (metadata.max.age.ms) if partitions were just added; else look at the assignor",
    ),
    "partition-owned-twice": (
        "two members were assigned the same partition: its records are read twice",
        "look at the assignor, which the application may have replaced",
    ),
    "rebalance-storm": (
        "the group rebalanced again and again; with most assignors nobody reads meanwhile",
        "find the members that come and go; a deploy is helped by group.instance.id",
    ),
    "member-flapping": (
        "one client left the group and came back, several times",
        "look at its restarts, session.timeout.ms and max.poll.interval.ms",
    ),
    "rebalance-aborted": (
        "a rebalance started over before its leader had assigned partitions",
        "look at the leader's log; group.initial.rebalance.delay.ms helps where members start one by one",
    ),
    "rebalance-slow": (
        "all members waited for the leader to assign partitions",
        "look at the leader: garbage collection, a slow assignor, or processing in the polling thread",
    ),
    "timeouts-inconsistent": (
        "timeouts differ between members, or are so short or long that they harm",
        "give all members of a group the same, moderate timeouts",
    ),
    "mixed-subscriptions": (
        "members have no topic in common: perhaps different applications with one group id",
        "give each application its own group.id",
    ),
    "assignment-skewed": (
        "one member holds at least twice the mean number of partitions",
        "use another assignor, such as CooperativeStickyAssignor",
    ),
    "member-idle": (
        "members hold no partition: standbys on purpose, or too many",
        "add partitions or run fewer members",
    ),
    "client-old": (
        "members subscribe as Java clients before 2.4 do, or kafka-python's range: no cooperative rebalancing",
        "upgrade the client or choose another assignor; nothing is broken",
    ),
}
"""Rule -> (what it means, what helps)."""
