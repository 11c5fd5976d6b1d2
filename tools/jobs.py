"""Does named jobs on workers and keeps what each gave: after a kill, the same call does the others only.

>>> with open_workers(2) as workers, open_journal(folder / "sweep.journal", about) as journal:
...     for name, result in journal.run(workers, function, shared, {"first": 1, "second": 2}):
...         ...

When the block ends without an error the journal goes: what is finished is not taken for a later call's.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from rtlstm.spec.errors import BuildError
from rtlstm.tools.cache import digest
from rtlstm.tools.work import Workers

__all__ = ["Journal", "code_digest", "open_journal"]

Shared = TypeVar("Shared")
Item = TypeVar("Item")


class Journal:
    """The results of jobs in a file, a line of JSON each; open it with :func:`open_journal`."""

    def __init__(self, file: BinaryIO, path: Path, about: str) -> None:
        self._file, self._path = file, path
        self.results = self._read(about)
        """What is kept, by the names of the jobs."""

    def _read(self, about: str) -> dict[str, Any]:
        """Return the results of the same work; cut off a line that was not written to its end."""
        self._file.seek(0)
        whole, _, _ = self._file.read().rpartition(b"\n")
        first, *lines = whole.split(b"\n") if whole else [b""]
        if first == _line({"about": about}):
            self._file.truncate(len(whole) + 1)
            return dict(self._result(number, line) for number, line in enumerate(lines, start=2))
        self._file.truncate(0)
        self._write({"about": about})
        return {}

    def _result(self, number: int, line: bytes) -> tuple[str, Any]:
        """Return a line's name and result; a kill leaves only the last one unfinished, without its end."""
        try:
            name, result = json.loads(line)
            if isinstance(name, str):
                return name, result
        except (ValueError, TypeError):
            pass  # It is no JSON, or not a pair.
        raise BuildError(
            f"{self._path}: line {number} must hold a job's name and result as JSON, but is damaged: delete "
            "the line, and its job is done again, or the file, and all are"
        )

    def _write(self, value: Any) -> None:
        self._file.seek(0, os.SEEK_END)
        self._file.write(_line(value) + b"\n")
        self._file.flush()

    def run(
        self,
        workers: Workers,
        function: Callable[[Shared, Item], Any],
        shared: Shared,
        jobs: Mapping[str, Item],
    ) -> Iterator[tuple[str, Any]]:
        """Yield each job's name and ``function(shared, job)``, first those that are kept, then as they end.

        Results are values of JSON. Errors are those of :meth:`rtlstm.tools.work.Workers.run`.
        """
        left = [name for name in jobs if name not in self.results]
        yield from [(name, self.results[name]) for name in jobs if name in self.results]
        for index, result in workers.run(function, shared, [jobs[name] for name in left]):
            self._write([left[index], result])
            self.results[left[index]] = json.loads(json.dumps(result))
            yield left[index], self.results[left[index]]


@contextmanager
def open_journal(path: Path, about: str) -> Iterator[Journal]:
    """Open a journal, or begin one; it goes when the block ends without an error, as does a new folder.

    Parameters
    ----------
    about
        All that results depend on, such as a digest: a journal of something else is begun again.

    Raises
    ------
    BuildError
        If another process works with it, or a line before its last one is damaged.
    """
    new = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BuildError(f"another process does the jobs of {path}; wait for it") from None
        if not os.fstat(file.fileno()).st_nlink:
            # Between opening and locking, a process that was done with it removed it.
            raise BuildError(f"another process has just done the jobs of {path}; call again")
        yield Journal(file, path, about)
        path.unlink(missing_ok=True)
    if new:
        with suppress(OSError):  # There are other files in it.
            path.parent.rmdir()


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def code_digest() -> str:
    """Return a digest of all files of this package: results of other code are not these."""
    root = Path(__file__).parents[1]
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return digest(*(part for path in files for part in (str(path.relative_to(root)), path.read_bytes())))
