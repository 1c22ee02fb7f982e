"""One group, replayed: what the replica holds (``group``), and the only writer of it (``replay``)."""
