"""Bodies of group requests as bytes: what no client library would send."""

import struct

from tests.support.records import data as sized
from tests.support.records import string

JOIN_GROUP = 11


def join_group(group, *, member_id="", session_timeout_ms=10_000, metadata=b"", protocol_type="consumer"):
    """JoinGroup, version 0 to 4: one protocol, `range`."""
    timeouts = struct.pack(">ii", session_timeout_ms, session_timeout_ms)
    protocols = struct.pack(">i", 1) + string("range") + sized(metadata)
    return string(group) + timeouts + string(member_id) + string(protocol_type) + protocols
