"""How to install what a command lacks: nothing is published, so from a checkout of the source."""


def how_to_install(extra: str) -> str:
    """Return the command that installs the packages of an extra of pyproject.toml."""
    return f"in a checkout of this project run pip install '.[{extra}]'"
