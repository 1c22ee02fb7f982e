"""Numbers for names, so that columns hold numbers; the number of a name that is no longer used is reused."""

from typing import Generic, TypeVar

Name = TypeVar("Name", str, bytes)


class Names(Generic[Name]):
    """Names by number; as long as `changes` stays the same, earlier lookups are valid."""

    def __init__(self) -> None:
        self.by_number: list[Name | None] = []
        self.changes = 0
        self._numbers: dict[Name, int] = {}
        self._uses: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, name: Name) -> bool:
        return name in self._numbers

    def __getitem__(self, number: int) -> Name:
        name = self.by_number[number]
        if name is None:
            raise KeyError(number)
        return name

    def get(self, name: Name) -> int:
        """Return a name's number; -1 if it has none."""
        return self._numbers.get(name, -1)

    def use(self, name: Name) -> int:
        """Return a name's number, assigning one if needed; it has one more user."""
        number = self._numbers.get(name)
        if number is None:
            number = self._given(name)
        self._uses[number] += 1
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

    def names(self) -> list[Name]:
        """Return all names in use."""
        return list(self._numbers)

    def _given(self, name: Name) -> int:
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
