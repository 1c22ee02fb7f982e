"""All that travelled to an operator key, as events."""

from streaming.run.packing import unpack


def unpacked(payloads):
    """Return the events of one key's payloads, those that came as blocks too."""
    events, blocks = unpack(payloads)
    return [*events, *(beat for block in blocks for beat in block.rows())]
