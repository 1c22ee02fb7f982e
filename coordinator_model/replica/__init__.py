"""The replica of one group: its state (``group``), and the only modules that write it (``replay`` and ``advance``)."""
