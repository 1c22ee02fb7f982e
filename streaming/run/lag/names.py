"""Numbers for names, so that columns hold numbers; the number of a name that is no longer used is reused."""


class Names:
    """Names by number; as long as `changes` stays the same, earlier lookups are valid."""

    def __init__(self) -> None:
        self.by_number: list[str | None] = []
        self.changes = 0
        self._numbers: dict[str, int] = {}
        self._uses: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

    def __getitem__(self, number: int) -> str:
        name = self.by_number[number]
        if name is None:
            raise KeyError(number)
        return name

    def get(self, name: str) -> int:
        """Return a name's number; -1 if it has none."""
        return self._numbers.get(name, -1)

    def use(self, name: str, users: int = 1) -> int:
        """Return a name's number, assigning one if needed, and add to its users."""
        number = self._numbers.get(name)
        if number is None:
            number = self._given(name)
        self._uses[number] += users
        return number

    def release(self, number: int) -> bool:
        """Remove a user; return whether it was the last one, so that the name is removed too."""
        self._uses[number] -= 1
        if self._uses[number]:
            return False
        del self._numbers[self[number]]
        self.by_number[number] = None
        self._free.append(number)
        self.changes += 1
        return True

    def names(self) -> list[str]:
        """Return all names in use."""
        return list(self._numbers)

    def _given(self, name: str) -> int:
        self.changes += 1
        if self._free:
            number = self._free.pop()
            self.by_number[number] = name
        else:
            number = len(self.by_number)
            self.by_number.append(name)
            self._uses.append(0)
        self._numbers[name] = number
        return number
