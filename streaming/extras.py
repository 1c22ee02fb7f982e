"""How to install packages that a command lacks: from a checkout of the source, because nothing is published."""


def how_to_install(extra: str) -> str:
    """Return the command that installs the packages of an extra of pyproject.toml."""
    return f"in a checkout of this project run pip install '.[{extra}]'"
