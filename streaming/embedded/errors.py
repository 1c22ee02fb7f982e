"""The one error of this package."""


class EmbeddedBrokerError(RuntimeError):
    """The broker cannot run; the message is one line that says what to do about it."""
