"""The groups of a shard: one compressed slice for each, and the replicas that a batch has decoded from slices.

Nearly all batches have nothing but heartbeats, which touch no replica. Then the joined slices stay the same bytes.
"""

from coordinator_model.replica.group import GroupReplica
from coordinator_model.shard import snapshot


class GroupStore:
    """Replicas by group id. A change in one is kept only if ``touch`` marks the group."""

    __slots__ = ("_open", "_slices", "_touched", "joined")

    def __init__(self, slices: dict[str, bytes] | None = None, joined: bytes | None = None) -> None:
        self._slices = slices or {}
        self._open: dict[str, GroupReplica] = {}
        self._touched: set[str] = set()
        self.joined = joined
        """The joined slices, as ``dump`` last returned them; None: a slice has changed since, or there was no dump."""

    def __contains__(self, group: str) -> bool:
        return group in self._slices or group in self._open

    def __len__(self) -> int:
        return len(self._slices.keys() | self._open.keys())

    def names(self) -> list[str]:
        """Return the ids of the groups known here, sorted."""
        return sorted(self._slices.keys() | self._open.keys())

    def opened(self, group: str) -> GroupReplica | None:
        """Return a group's replica if this batch has decoded it."""
        return self._open.get(group)

    def replica(self, group: str) -> GroupReplica:
        """Return a group's replica, decoded from its slice if necessary, or a new one if the group is not known."""
        replica = self._open.get(group)
        if replica is None:
            piece = self._slices.get(group)
            replica = snapshot.load_group(group, piece) if piece is not None else GroupReplica(group)
            self._open[group] = replica
        return replica

    def put(self, replica: GroupReplica) -> None:
        """Replace the replica of a group."""
        self._open[replica.group] = replica
        self._touched.add(replica.group)

    def drop(self, group: str) -> None:
        """Forget everything about a group."""
        self._open.pop(group, None)
        self._touched.discard(group)
        if self._slices.pop(group, None) is not None:
            self.joined = None

    def touch(self, group: str) -> None:
        """Mark a group's replica as changed, so that it is encoded again at the end of the batch."""
        self._touched.add(group)

    def encode(self) -> dict[str, Exception]:
        """Encode the replicas that were touched; return the errors of those that cannot be encoded."""
        failed: dict[str, Exception] = {}
        for group in self._touched:
            try:
                self._slices[group] = snapshot.dump_group(self._open[group])
            except Exception as error:  # noqa: BLE001 # whatever it is, the others are encoded
                failed[group] = error
        if self._touched:
            self.joined = None
        self._touched.clear()
        return failed

    def rebase(self, delta_ms: int, until_ms: int) -> None:
        """Move all instants of the groups along with their coordinator's clock. Every change must have been encoded."""
        self._open.clear()
        for group, piece in self._slices.items():
            self._slices[group] = snapshot.rebase_group(piece, delta_ms, until_ms)
        self.joined = None

    def dump(self) -> bytes:
        """Encode what was touched, drop all decoded replicas, and return the slices, joined."""
        self.encode()
        if self.joined is None:
            self.joined = snapshot.dump_slices(self._slices)
        self._open.clear()  # thousands of objects that are not needed now, but that the garbage collector would visit
        return self.joined
