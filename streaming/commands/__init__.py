"""The commands, one module each. A command imports what it needs only when it runs."""
