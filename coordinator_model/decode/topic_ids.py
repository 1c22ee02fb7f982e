"""Topic ids in Kafka's text form: 16 bytes as base64url without padding, 22 characters."""

import base64
import binascii
from uuid import UUID

LENGTH = 22


def text_of(topic_id: UUID) -> str:
    """Return the text that Kafka's tools print for an id."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def id_of(text: str) -> UUID | None:
    """Read that text; None: it is not an id, as is the case for nearly every topic's name."""
    if len(text) != LENGTH:
        return None
    try:
        topic_id = UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except (ValueError, binascii.Error):
        return None
    return topic_id if text_of(topic_id) == text else None
