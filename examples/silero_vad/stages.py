"""Progress of the demo's stages."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

__all__ = ["Stages"]


class Stages:
    """Progress on stderr: one line per stage, the last one moving."""

    def __init__(self) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]+[/]"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._stages: dict[str, TaskID] = {}
        self._current: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._finish()
        self._progress.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` parts of a stage are done; a new name ends the last stage."""
        stage = self._stages.get(what)
        if stage is None or stage != self._current:
            self._finish()
        if stage is None:
            stage = self._stages[what] = self._progress.add_task(what, total=total)
        self._current = stage
        self._progress.update(stage, completed=done, total=total)

    def within(self, part: str) -> Callable[[str, int, int], None]:
        """Return the same progress with ``part`` in front of each stage's name."""
        return lambda what, done, total: self(f"{part}: {what}", done, total)

    def _finish(self) -> None:
        for task in self._progress.tasks:
            if task.id == self._current:
                self._progress.update(task.id, completed=task.total)
