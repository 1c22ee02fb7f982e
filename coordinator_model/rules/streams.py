"""Kafka Streams: its consumers stop without a LeaveGroup, so a stop and a death look alike (kafka-facts 4.6)."""

import re

from coordinator_model.replica.member import Member
from coordinator_model.states import Severity

STREAMS_SEVERITY = Severity.INFO
"""Of the end of such a consumer's session, instead of its rule's own."""
_CLIENT_ID = re.compile(r"-StreamThread-\d+-consumer\Z")
"""``<application.id>-<process id>-StreamThread-<n>-consumer``, unless somebody names his clients himself."""


def is_streams(member: Member) -> bool:
    """Tell whether a member is a consumer of a Kafka Streams application: its end of session is no reason to page."""
    return member.streams or _CLIENT_ID.search(member.client_id) is not None
