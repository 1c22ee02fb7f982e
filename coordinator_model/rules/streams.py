"""Kafka Streams: its consumers send no LeaveGroup when they are closed, so closed ones look like dead ones."""

import re

from coordinator_model.replica.member import Member
from coordinator_model.states import Severity

STREAMS_SEVERITY = Severity.INFO
"""The severity of ``session-expired`` for such a consumer."""
_CLIENT_ID = re.compile(r"-StreamThread-\d+-consumer\Z")
"""``<application.id>-<process id>-StreamThread-<n>-consumer``, unless the application sets its own client ids."""


def is_streams(member: Member) -> bool:
    """Tell whether a member is a consumer of a Kafka Streams application. The end of its session must not page."""
    return member.streams or _CLIENT_ID.search(member.client_id) is not None
