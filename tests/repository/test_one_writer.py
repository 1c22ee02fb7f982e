"""A replica is written by `replay` and `advance` only; everything outside `coordinator_model/replica` reads.

The syntax trees are searched for what writes: an assignment to a field of a class of the replica, a call that changes
such a field in place, and a call of a function that does either. Names decide, not types: a field's name on anything
but `self` counts, and a variable that was made from such a field stands for it.
"""

import ast
from dataclasses import fields
from pathlib import Path

import pytest

from coordinator_model.replica.group import GroupReplica, Leave
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.judge import CAUSES, explain, judge
from coordinator_model.replica.removals.phases import EndedPhase, JoinPhase
from coordinator_model.replica.removals.uncertain import DOUBTS

ROOT = Path(__file__).parents[2]
CORE = ROOT / "coordinator_model"
REPLICA = {
    ".".join(path.relative_to(CORE / "replica").with_suffix("").parts): path
    for path in sorted((CORE / "replica").rglob("*.py"))
}
"""Its modules by name, as `removals.judge`."""
OTHERS = sorted(
    [*CORE.glob("rules/*.py"), *CORE.glob("shard/*.py"), CORE / "capture_replay.py", CORE / "lag_tracker.py"]
)
"""All that may import `replica`: what lies below it knows nothing of replicas."""
PACKAGE = "coordinator_model.replica"
CLASSES = (GroupReplica, Member, Departure, Leave, JoinPhase, EndedPhase)
FIELDS = {field.name for cls in CLASSES for field in fields(cls)}
CHANGING = {
    *("append", "extend", "insert", "remove", "pop", "popitem", "clear", "update", "setdefault", "add", "discard"),
    *("sort", "reverse"),
}
"""Methods that change a list, a dict or a set in place."""
DOORS = {
    "replay": {"replay", "plain_heartbeat", "disputed_heartbeat", "deposed_leave", "deposed_sync"},
    "advance": {"advance", "conclude", "end_if_tombstoned", "forget_reported", "take_heartbeats", "take_over"},
}
"""What of `replica` others may call though it writes: an event, or time and judgement."""
EXPLAINED = {
    "lag_tracker.py": {"ends.asked_ms": "end offsets"},
    "shard/groups.py": {"self.memory.deleted[group]": "what a shard remembers beside its groups"},
    "shard/group_events.py": {"self._groups.memory.deleted.pop(group, None)": "the same"},
    "shard/snapshot.py": dict.fromkeys(
        [
            "setattr(replica, name, value)",
            "setattr(replica, name, {key: note(*fields) for key, fields in getattr(replica, name).items()})",
            *(f"replica.{name}" for name in ("state_evidence", "set_aside", "diverged", "violations", "rebalances")),
            *(f"replica.{name}" for name in ("aborted", "leaves", "recorded", "unconverted", "departures")),
            *(f"replica.{name}" for name in ("unexplained", "phase", "unreported_phase", "joins")),
            "replica.members[member.member_id]",
            "departure.cause",
            "departure.evidence",
        ],
        "a replica that is read from the state is being made",
    ),
}
"""What looks like it and is not: by module, the code and why."""


class Writes(ast.NodeVisitor):
    """What in a module writes into a replica: the line, and the code."""

    def __init__(self, own):
        self.found = []
        self._own = own
        self._made_from = set()

    def _field(self, node):
        """Whether an expression is a field of something other than `self`, or was made from one."""
        if isinstance(node, ast.Name):
            return node.id in self._made_from
        if isinstance(node, ast.Subscript):
            return self._field(node.value)
        own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self._own
        return isinstance(node, ast.Attribute) and node.attr in FIELDS and not own

    def _target(self, node):
        if isinstance(node, ast.Tuple | ast.List):
            for element in node.elts:
                self._target(element)
        elif isinstance(node, ast.Attribute | ast.Subscript) and self._field(node):
            self._note(node)

    def _note(self, node):
        self.found.append(ast.unparse(node))

    def visit_FunctionDef(self, node):
        before, self._made_from = self._made_from, set()
        self.generic_visit(node)
        self._made_from = before

    def visit_Assign(self, node):
        for target in node.targets:
            self._target(target)
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Attribute) and self._field(node.value):
                self._made_from.add(target.id)
        self.generic_visit(node)

    def visit_AugAssign(self, node):
        self._target(node.target)
        self.generic_visit(node)

    def visit_AnnAssign(self, node):
        self._target(node.target)
        self.generic_visit(node)

    def visit_Delete(self, node):
        for target in node.targets:
            self._target(target)

    def visit_Call(self, node):
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in CHANGING and self._field(function.value):
            self._note(node)
        if isinstance(function, ast.Name) and function.id in ("setattr", "delattr"):
            self._note(node)
        self.generic_visit(node)


def writes(tree, own=("self", "cls")):
    """What a piece of code writes into a replica; `own`: whose fields are others'."""
    visitor = Writes(own)
    visitor.visit(tree)
    return visitor.found


def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def writers():
    """The functions of `replica` that write, as (module, name), those that call one among them."""
    trees = {name: tree_of(path) for name, path in REPLICA.items()}
    functions = functions_of(trees)
    imported = {name: imports(tree) for name, tree in trees.items()}
    calls = {(name, function): called(node, imported[name], name) for (name, function), node in functions.items()}
    writing = {key for key, node in functions.items() if writes(node) or calls_a_method(node)}
    while more := {key for key, others in calls.items() if others & writing} - writing:
        writing |= more
    return writing


def functions_of(trees):
    return {
        (module, node.name): node for module, tree in trees.items() for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }  # fmt: skip


def imports(tree):
    """Local name to (module of `replica`, name in it); of a module itself the name is empty."""
    found = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not f"{node.module}.".startswith(f"{PACKAGE}."):
            continue
        package = node.module.removeprefix(PACKAGE).removeprefix(".")
        for alias in node.names:
            module = f"{package}.{alias.name}".removeprefix(".")
            found[alias.asname or alias.name] = (module, "") if module in REPLICA else (package, alias.name)
    return found


def called(node, imported, module=""):
    """The functions that a piece of code calls or hands on, as (module, name)."""
    found = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.add(imported.get(part.id, (module, part.id)))
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id in imported:
            found.add((imported[part.value.id][0], part.attr))
    return found


def writing_methods():
    """The methods of the replica's classes that write."""
    methods = {}
    for cls in (cls for name in ("group", "member") for cls in tree_of(REPLICA[name]).body):
        for node in cls.body if isinstance(cls, ast.ClassDef) else ():
            if isinstance(node, ast.FunctionDef):
                methods[node.name] = node
    return {name for name, node in methods.items() if writes(node, own=())}


METHODS = writing_methods()


def calls_a_method(node):
    return [
        part.func.attr for part in ast.walk(node)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in METHODS
    ]  # fmt: skip


def forbidden(tree, path=""):
    """What in a module outside `replica` writes into one."""
    doors = {(module, name) for module, names in DOORS.items() for name in names}
    entered = (called(tree, imports(tree)) & WRITERS) - doors
    return {*writes(tree), *calls_a_method(tree), *(".".join(door) for door in entered)} - EXPLAINED.get(
        path, {}
    ).keys()


WRITERS = writers()
FUNCTIONS = functions_of({name: tree_of(path) for name, path in REPLICA.items()}).keys()


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: str(path.relative_to(CORE)))
def test_nobody_but_replay_and_advance_writes_into_a_replica(path):
    assert forbidden(tree_of(path), str(path.relative_to(CORE))) == set()


BAD = {
    "replica.generation = 1": "replica.generation",
    "replica.members['m'].kip848 = True": "replica.members['m'].kip848",
    "for member in replica.members.values():\n    member.unknown_ms = 1": "member.unknown_ms",
    "departure.removed_ms += 1": "departure.removed_ms",
    "replica.state, count = state, 1": "replica.state",
    "replica.refused[key] = row": "replica.refused[key]",
    "del replica.members[member_id]": "replica.members[member_id]",
    "replica.leaves.append(leave)": "replica.leaves.append(leave)",
    "self._groups.replica(group).zombies.clear()": "self._groups.replica(group).zombies.clear()",
    "def f(replica):\n    leaves = replica.leaves\n    leaves.clear()": "leaves.clear()",
    "setattr(replica, name, 1)": "setattr(replica, name, 1)",
    "replica.mark_deleted()": "mark_deleted",
    "from coordinator_model.replica.classic import start_rejoin_timer as s\ns(member, 1)": "classic.start_rejoin_timer",
    "from coordinator_model.replica import classic\nclassic.record_heartbeat(member, 1)": "classic.record_heartbeat",
    "from coordinator_model.replica.removals import join_phase as p\np.end_phase(replica, 2, 1)": (
        "removals.join_phase.end_phase"
    ),
    "departure.phase.limit_ms = 1": "departure.phase.limit_ms",
}


@pytest.mark.parametrize("code", BAD)
def test_each_way_of_writing_is_found(code):
    assert forbidden(ast.parse(code)) == {BAD[code]}


GOOD = [
    "state = replica.state",
    "self.generation = array('i')",
    "found = list(replica.leaves)\nfound.clear()",
    "from coordinator_model.replica.replay import replay\nreplay(replica, event, context)",
    "names = sorted(replica.members)\nnames.append('m')",
]


@pytest.mark.parametrize("code", GOOD)
def test_reading_is_no_writing(code):
    assert forbidden(ast.parse(code)) == set()


@pytest.mark.parametrize("function", [*CAUSES, *DOUBTS, explain, judge], ids=lambda function: function.__name__)
def test_judging_a_removal_writes_nothing(function):
    module = function.__module__.removeprefix(f"{PACKAGE}.")
    assert (module, function.__name__) in FUNCTIONS
    assert (module, function.__name__) not in WRITERS


def test_what_may_be_called_and_what_is_explained_is_there():
    assert {(module, name) for module, names in DOORS.items() for name in names} <= WRITERS
    for path, explained in EXPLAINED.items():
        assert explained.keys() <= set(writes(tree_of(CORE / path))), path
