"""Runs of synthesis, and of place and route, from the cache if the same run was done before."""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rtlstm.spec.errors import ToolError
from rtlstm.spec.files import copy_file
from rtlstm.spec.progress import Progress
from rtlstm.tools.cache import cached

__all__ = ["StoredRun", "read_json", "run_stored"]

_SECONDS = "seconds.json"


@dataclass(frozen=True)
class StoredRun:
    """Files of a run."""

    folder: Path
    """The folder, in the cache: its files must not be changed."""
    seconds: float
    stored: bool
    """Whether it came from the cache."""


def run_stored(
    kind: str,
    key: str,
    run: Callable[[Path], float],
    results: Collection[str],
    log: Path,
    progress: Progress | None = None,
) -> StoredRun:
    """Run a tool, or take the stored result of the same run; its log is then copied, too.

    Parameters
    ----------
    kind, key
        As for :func:`~rtlstm.tools.cache.cached`.
    run
        Called with an empty folder to work in; returns the seconds that the tool took. It writes the log to
        ``log``, and under the same name to the folder.
    results
        Names of the files that it must write. JSON among them is checked.

    Raises
    ------
    ToolError
        If a result is missing or is damaged JSON, which happens without an error when the disk is full.
        Nothing is stored then.
    """
    stored = True

    def build(work: Path) -> None:
        nonlocal stored
        stored = False
        (work / _SECONDS).write_text(json.dumps(round(run(work), 1)))
        for name in results:
            if not _is_whole(work / name):
                raise ToolError(f"{name} is missing or incomplete; is the disk full? see {log}")

    found = cached(kind, key, build, progress)
    if stored:
        copy_file(found / log.name, log)
    return StoredRun(found, read_json(found / _SECONDS), stored)


def _is_whole(path: Path) -> bool:
    if path.suffix != ".json":
        return path.exists()
    try:
        read_json(path)
    except ToolError:
        return False
    return True


def read_json(path: Path) -> Any:
    """Read a JSON file that a tool wrote.

    Raises
    ------
    ToolError
        If the file is missing or damaged.
    """
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ToolError(
            f"{path} cannot be read ({error}); is the disk full? remove its folder and try again"
        ) from None
