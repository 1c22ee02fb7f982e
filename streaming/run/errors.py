"""Errors of `run`, worded for the person who started it."""


class RunError(Exception):
    """The job cannot start or continue; the text says why and what to do."""
