"""metrics.csv: one row per epoch and seed."""

import csv
import io
from collections.abc import Sequence

from surefoot.algorithms.loop import Row
from surefoot.core.files import Damaged
from surefoot.runs.folder import METRICS, RunFolder


class CsvLogger:
    """Writes metrics.csv and holds its whole content in memory.

    Before each write, the file is compared with that content. If it was deleted or edited during
    training, it is written again, so no row is lost.
    """

    def __init__(self, folder: RunFolder, content: bytes | None = None):
        """`content` is what the file holds so far; it is read if not given."""
        self._folder = folder
        self.content = folder.metrics_bytes() if content is None else content
        """Everything written so far."""

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows, with the columns in the order of the first row ever written."""
        text = self._encode(rows)
        self.restore()
        with self._folder.files.open(METRICS, "ab") as file:
            file.write(text)
        self.content += text

    def restore(self) -> None:
        """Write the file again if it is not what was written."""
        try:
            same = self._folder.metrics_bytes() == self.content
        except Damaged:  # no longer a file
            same = False
        if not same:
            self._folder.write(METRICS, self.content)

    def _encode(self, rows: Sequence[Row]) -> bytes:
        header = self.content.partition(b"\n")[0].decode()
        columns = next(csv.reader([header]), [])
        new = list(rows[0])
        if columns and set(columns) != set(new):
            added = ", ".join(sorted(set(new) - set(columns))) or "none"
            removed = ", ".join(sorted(set(columns) - set(new))) or "none"
            raise ValueError(
                f"{self._folder.path / METRICS} has other columns than this version writes (added: "
                f"{added}; removed: {removed}); resume with the version that started the run"
            )
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns or new)
        if not columns:
            writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()
