"""Runs many tests as jobs: on processes of this machine or on a Dask cluster, and on after a kill.

``python tests/support/sweep.py [--workers N | --scheduler ADDRESS] -m slow [PATHS]``, in the folder of the
tree, collects with pytest, and has each job run some tests of one file in a pytest of its own. Hosts of a
cluster need the tree in the same folder, set up likewise. Jobs that ended before a kill are not run again,
unless a file has changed since.
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rtlstm.bench.jobs import code_digest, open_journal
from rtlstm.spec.errors import RtlstmError
from rtlstm.tools.cache import digest
from rtlstm.tools.work import open_workers

ROOT = Path.cwd()
SIZE = 20
"""Tests of a job: few enough that a kill costs little, and so many that pytest's start does not count."""
NOTHING_COLLECTED = 5


def collect(arguments: list[str]) -> dict[str, list[str]]:
    """Return the tests that pytest finds, by the names of the jobs."""
    done = run_pytest(["--collect-only", "-q", *arguments])
    if done.returncode not in (0, NOTHING_COLLECTED):
        raise SystemExit(done.stdout + done.stderr)
    tests = [line for line in done.stdout.splitlines() if "::" in line]
    jobs: dict[str, list[str]] = {}
    for file, found in itertools.groupby(tests, lambda test: test.partition("::")[0]):
        every = list(found)
        for begin in range(0, len(every), SIZE):
            jobs[f"{file} {begin // SIZE + 1}"] = every[begin : begin + SIZE]
    return jobs


def run_pytest(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("pytest")), "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def run_job(options: list[str], tests: list[str]) -> dict[str, Any]:
    """Run the tests of a job; return the exit code, pytest's last line, and if tests failed all it said."""
    done = run_pytest(["-q", "-n", "0", *options, *tests])
    last = (done.stdout.strip().splitlines() or ["pytest said nothing"])[-1]
    return {
        "code": done.returncode,
        "last": last.strip("= "),
        "said": (done.stdout + done.stderr) * bool(done.returncode),
    }


def tests_digest() -> str:
    """Return a digest of all that results depend on beside the package: tests, examples, docs, options."""
    files = sorted(
        path
        for name in ("tests", "examples", "docs")
        for path in [*(ROOT / name).rglob("*"), ROOT / "pyproject.toml"]
        if path.is_file() and path.suffix != ".pyc"
    )
    return digest(*(part for path in files for part in (str(path), path.read_bytes())))


def main(arguments: list[str] | None = None) -> int:
    """Run the sweep; return 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--scheduler")
    parser.add_argument("--journal", type=Path, default=ROOT / "build" / "sweep.journal")
    parser.add_argument("-m", dest="marks", default="slow", help="as pytest's")
    given, chosen = parser.parse_known_args(arguments)
    options = ["-m", given.marks]
    jobs = collect([*options, *chosen])
    if not jobs:
        raise SystemExit(f"error: no test is chosen by {' '.join([*options, *chosen])}")
    about = digest(code_digest(), tests_digest(), repr((options, chosen)))
    started, failed = time.perf_counter(), []
    try:
        with (
            open_workers(given.workers, given.scheduler) as workers,
            open_journal(given.journal, about) as journal,
        ):
            kept = len(journal.results)
            print(f"{sum(map(len, jobs.values()))} tests in {len(jobs)} jobs, {kept} of them done before")
            for done, (name, result) in enumerate(journal.run(workers, run_job, options, jobs), 1):
                print(f"[{done}/{len(jobs)}] {name}: {result['last']}", flush=True)
                if result["code"]:
                    failed.append(name)
                    print(result["said"], flush=True)
            what = workers.description
    except RtlstmError as error:
        raise SystemExit(f"error: {error}") from None
    load = f"{os.getloadavg()[0]:.1f}"
    seconds = time.perf_counter() - started
    print(f"{len(jobs) - len(failed)} of {len(jobs)} jobs passed with {what} in {seconds:.1f} s, load {load}")
    for name in failed:
        print(f"failed: {name}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
