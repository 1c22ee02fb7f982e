"""All that travelled to an operator key, as events."""

from streaming.run.packing import events_in, heartbeats_in, unpack


def unpacked(payloads):
    """Return the events of one key's payloads, those that came as blocks too."""
    rows = unpack(payloads)
    return [*events_in(rows), *(beat for block in heartbeats_in(rows) for beat in block.rows())]
