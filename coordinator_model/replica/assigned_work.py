"""What is assigned to a classic member besides partitions: Kafka Streams' tasks, Connect's connectors.

Both come from the subscription and assignment in the group's record (``AssignmentInfo`` of Streams,
``ConnectProtocol``). It maps a role to names, and a name to numbers, as in streams groups:
``{"active": {"0": [1, 2]}}``, ``{"connectors": {"jdbc": [-1, 0]}}``, where -1 is the connector itself.
"""

from collections.abc import Iterable

from coordinator_model.decode.member_protocol import Task, connect_assignment, connect_worker, streams_tasks
from coordinator_model.replica.member import Assignment

CONNECT_PROTOCOL_TYPE = "connect"
STREAMS_PROTOCOL = "stream"
MAX_TASKS_SHOWN = 4_096
"""How many tasks are kept for each member; a blob from an unknown client could name millions."""
Work = dict[str, Assignment]


def assigned_work(protocol_type: str | None, protocol: str | None, subscribed: bytes, assigned: bytes) -> Work:
    """Read what is assigned to a member besides partitions; empty if there is nothing, or nothing readable."""
    if protocol_type == CONNECT_PROTOCOL_TYPE:
        connectors = _connectors(subscribed, assigned)
        return {"connectors": connectors} if connectors else {}
    if protocol == STREAMS_PROTOCOL:
        tasks = streams_tasks(assigned)
        roles = {} if tasks is None else {"active": _named(tasks.active), "standby": _named(tasks.standby)}
        return {role: held for role, held in roles.items() if held}
    return {}


def _named(tasks: Iterable[Task]) -> Assignment:
    held: Assignment = {}
    for subtopology, partition in [*tasks][:MAX_TASKS_SHOWN]:
        held.setdefault(str(subtopology), []).append(partition)
    return held


def _connectors(subscribed: bytes, assigned: bytes) -> Assignment:
    """Return what a Connect worker runs.

    Eager assignments are complete; incremental ones ("compatible", "sessioned") only change what the worker said it ran
    when it joined.
    """
    given = connect_assignment(assigned)
    if given is None:
        return {}
    worker = connect_worker(subscribed) if given.version > 0 else None
    runs = worker.allocation.assigned if worker is not None and worker.allocation is not None else ()
    tasks = {(name, task) for name, numbers in runs for task in numbers}
    tasks -= {(name, task) for name, numbers in given.revoked for task in numbers}
    tasks |= {(name, task) for name, numbers in given.assigned for task in numbers}
    held: Assignment = {}
    for name, task in sorted(tasks)[:MAX_TASKS_SHOWN]:
        held.setdefault(name, []).append(task)
    return held
