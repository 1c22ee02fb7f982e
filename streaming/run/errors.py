"""What can go wrong with a run, in words for whoever started it."""


class RunError(Exception):
    """The job cannot start or go on; the text says why and what to do."""
