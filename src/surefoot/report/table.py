"""A table as a report shows it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table of words."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""

    def __post_init__(self):
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"row={row} must have {len(self.head)} cells, as head has")
