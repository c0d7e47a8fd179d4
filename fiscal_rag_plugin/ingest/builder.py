"""TextBuilder: a source text put together from blocks, with the offset of each."""

from __future__ import annotations


class TextBuilder:
    """Collects blocks of text; a separator goes between two blocks, never at an end."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.length = 0

    def add(self, block: str, separator: str = "\n") -> tuple[int, int]:
        """Append ``block`` and return its span; a blank block adds nothing and spans 0 characters."""
        block = block.strip()
        if not block:
            return (self.length, self.length)
        if self._parts:
            self._parts.append(separator)
            self.length += len(separator)
        start = self.length
        self._parts.append(block)
        self.length += len(block)
        return (start, self.length)

    def text(self) -> str:
        return "".join(self._parts)
