"""Does named jobs on workers and keeps what each gave: after a kill, the same call does the others only.

>>> with open_workers(2) as workers, open_journal(folder / "sweep.journal", about) as journal:
...     for name, result in journal.run(workers, function, shared, {"first": 1, "second": 2}):
...         ...

When the block ends without an error the journal goes: what is finished is not taken for a later call's.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from rtlstm.spec.errors import BuildError
from rtlstm.tools.cache import digest
from rtlstm.tools.work import Workers

Shared = TypeVar("Shared")
Item = TypeVar("Item")


class Journal:
    """The results of jobs in an SQLite database, which a kill leaves whole; see :func:`open_journal`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        rows = database.execute("SELECT name, result FROM jobs")
        self.results: dict[str, Any] = {name: json.loads(result) for name, result in rows}
        """What is kept, by the names of the jobs."""

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
            name, text = left[index], json.dumps(result)
            self._database.execute("INSERT INTO jobs VALUES (?, ?)", (name, text))
            self.results[name] = json.loads(text)
            yield name, self.results[name]


@contextmanager
def open_journal(path: Path, about: str) -> Iterator[Journal]:
    """Open a journal, or begin one; it goes when the block ends without an error.

    ``about`` is all that results depend on, such as a digest: a journal of something else is begun again.
    Raises BuildError if another process works with it, or the file is damaged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without an isolation level, each result is written when its job ends.
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as database:
        try:
            # With this mode, the lock is kept until the database is closed.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("BEGIN EXCLUSIVE")
            database.execute("CREATE TABLE IF NOT EXISTS about (text)")
            database.execute("CREATE TABLE IF NOT EXISTS jobs (name, result)")
            if database.execute("SELECT text FROM about").fetchall() != [(about,)]:
                database.execute("DELETE FROM about")
                database.execute("DELETE FROM jobs")
                database.execute("INSERT INTO about VALUES (?)", (about,))
            database.execute("COMMIT")
            journal = Journal(database)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise BuildError(f"another process does the jobs of {path}; wait for it") from None
            raise BuildError(f"{path} is damaged ({error}): delete it, and all jobs are done again") from None
        yield journal
    path.unlink()
    with suppress(OSError):  # Builds are in the folder, unless none was asked for.
        path.parent.rmdir()


def code_digest() -> str:
    """Return a digest of all files of this package: results of other code are not these."""
    root = Path(__file__).parents[1]
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return digest(*(part for path in files for part in (str(path.relative_to(root)), path.read_bytes())))
