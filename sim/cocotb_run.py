"""Compiles a build, alone or inside a design, and runs cocotb tests on it.

The simulators' programs are built once and cached. cocotb makes every signal visible, which slows Verilator
down: use :mod:`rtlstm.sim.compile_model` for long runs.
"""

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from rtlstm.sim.simulated_ports import SIMULATION, Simulator, copy_sources
from rtlstm.spec.buses import NO_BUS
from rtlstm.spec.errors import ConfigurationError, RtlstmError, ToolError
from rtlstm.spec.manifest import Manifest, check_rtl
from rtlstm.spec.progress import Progress, tell
from rtlstm.tools.cache import cached, digest
from rtlstm.tools.toolchain import icarus, package_version, verilator, verilator_environment

BUILD_VARIABLE: Final = "RTLSTM_BUILD"
"""Names the build folder to the tests of a run."""

_INCLUDED = (".v", ".vh", ".sv", ".svh", ".inc")
_HEADERS = (".vh", ".svh")
_INCLUDE = re.compile(rb'`include\s+"([^"\n]+)"')
_OWN_ERRORS: Final = {"RtlstmError", *(kind.__name__ for kind in RtlstmError.__subclasses__())}
_VERILATOR = ("--x-assign", "unique", "--x-initial", "unique", "-Wno-fatal", "-Wno-lint")


@dataclass(frozen=True)
class Design:
    """Verilog to simulate."""

    top: str
    """Its top module."""
    sources: tuple[Path, ...]
    includes: tuple[Path, ...] = ()
    """Folders of files that sources include, in addition to the sources' own."""
    defines: Mapping[str, object] = field(default_factory=dict)
    """Macros."""
    parameters: Mapping[str, object] = field(default_factory=dict)
    """Parameters of the top module, in Verilog: a text is not quoted."""

    def check(self) -> None:
        """Check the files.

        Raises ConfigurationError if a source is no Verilog, or a file or folder does not exist.
        """
        for path in self.sources:
            if path.suffix not in (".v", ".sv", ".vlt"):
                raise ConfigurationError(f"sources must be Verilog, *.v or *.sv, not {path.name}")
            if not path.is_file():
                raise ConfigurationError(f"sources must be files, but {path} does not exist")
        for path in self.includes:
            if not path.is_dir():
                raise ConfigurationError(f"includes must be folders, but {path} is none")

    @property
    def include_folders(self) -> list[Path]:
        """All folders of files to include."""
        return list(dict.fromkeys([*self.includes, *(path.parent for path in self.sources)]))

    def digest_parts(self) -> list[bytes | str]:
        """What the compiled simulation is made from."""
        # A name in a macro cannot be followed: files that look like it count, too.
        read = list(self.sources)
        for folders, kinds in ((self.includes, _INCLUDED), (self.include_folders, _HEADERS)):
            read += [
                path
                for folder in folders
                for path in sorted(folder.iterdir())
                if path.suffix in kinds and path.is_file()
            ]
        read = list(dict.fromkeys(read))
        texts: list[bytes | str] = []
        for path in read:
            text = path.read_bytes()
            texts.append(text)
            for name in _INCLUDE.findall(text):
                for folder in self.include_folders:
                    found = folder / os.fsdecode(name)
                    if found.is_file() and found not in read:
                        # The loop comes to it, and to what it includes.
                        read.append(found)
        return [*texts, self.top, repr(sorted(self.defines.items())), repr(sorted(self.parameters.items()))]


def compile_design(
    design: Design, simulator: Simulator, waves: bool = False, progress: Progress | None = None
) -> Path:
    """Compile Verilog for cocotb; return the folder to run it from, perhaps in the cache.

    Raises ConfigurationError if a source cannot be used. Raises ToolError if cocotb or the simulator is
    missing or fails.
    """
    design.check()
    version = package_version("cocotb", "sim", "a cocotb test")
    verilator_build = simulator == "verilator"
    tool = verilator().version if verilator_build else icarus().version
    options = [*(_VERILATOR if verilator_build else ()), "waves" if waves else "plain"]
    # The program finds cocotb's libraries where this interpreter has them.
    key = digest(*design.digest_parts(), version, tool, sys.prefix, *options)

    def build(folder: Path) -> None:
        from cocotb_tools.runner import get_runner

        what = f"compiling {design.top} for cocotb under {simulator}"
        tell(progress, what, 0, 1)
        log = folder / "build.log"
        try:
            with simulator_environment(simulator):
                get_runner(simulator).build(
                    sources=[folder / name for name in copy_sources(design.sources, folder)],
                    includes=design.include_folders,
                    defines=design.defines,
                    parameters=design.parameters,
                    hdl_toplevel=design.top,
                    build_dir=folder,
                    build_args=list(_VERILATOR) if verilator_build else [],
                    timescale=("1ns", "1ps"),
                    waves=waves,
                    log_file=log,
                )
        except (RuntimeError, SystemExit) as error:
            raise ToolError(f"{what} failed ({error}):\n{_tail(log)}") from None
        for path in folder.iterdir():
            # Objects and precompiled headers are a hundred times as large as the program.
            if path.suffix in (".o", ".gch", ".a", ".cpp", ".h", ".d"):
                path.unlink()
        tell(progress, what, 1, 1)

    return cached(f"cocotb-{simulator}", key, build, progress)


@dataclass(frozen=True)
class TestOutcome:
    """What became of one cocotb test."""

    __test__ = False

    name: str
    failure: str
    """Why it failed, empty if it passed."""
    traceback: str = ""


@dataclass(frozen=True)
class TestRun:
    """What became of the cocotb tests of a module."""

    __test__ = False

    simulator: Simulator
    outcomes: tuple[TestOutcome, ...]
    seconds: float
    """Time of the run, without the build."""
    log: Path
    waves: Path | None
    """Waveforms, if they were asked for."""

    @property
    def passed(self) -> bool:
        """Whether every test passed."""
        return not any(outcome.failure for outcome in self.outcomes)


def build_design(
    folder: Path,
    *,
    top: str | None = None,
    sources: Sequence[str | Path] = (),
    includes: Sequence[str | Path] = (),
    defines: Mapping[str, object] | None = None,
    parameters: Mapping[str, object] | None = None,
) -> Design:
    """Return a build's Verilog as a design, alone or with sources around it.

    ``top`` is the top module; by default what a system instantiates of the build, its bus wrapper if it has
    one. ``sources`` are the Verilog of the design around the core; the build's own file is added.
    """
    manifest = Manifest.load(folder)
    bus = manifest.parameters.bus
    outer = manifest.name if bus == NO_BUS else f"{manifest.name}_{bus}"
    verilog = check_rtl(folder, manifest).absolute()
    return Design(
        top=outer if top is None else top,
        sources=(*(Path(path).absolute() for path in sources), verilog),
        includes=tuple(Path(path).absolute() for path in includes),
        defines={SIMULATION: 1, **(defines or {})},
        parameters=dict(parameters or {}),
    )


def run_tests(
    module: Path,
    folder: Path,
    design: Design,
    simulator: Simulator,
    run_folder: Path,
    *,
    waves: bool = False,
    seed: int = 1,
    tests: str | None = None,
    variables: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> TestRun:
    """Run the cocotb tests of a Python file, ``module``, on a design.

    ``folder`` is the build that :class:`rtlstm.cocotb.Core` takes by default. Log, results and waveforms are
    written to ``run_folder``, the simulator's current folder. ``tests`` is a regular expression: only tests
    whose names have it are run. ``variables`` are more environment variables for the tests. Raises
    ConfigurationError if the file holds no such test, or the design cannot be used. Raises ToolError if
    cocotb or the simulator is missing, or fails.
    """
    program = compile_design(design, simulator, waves, progress)
    run_folder.mkdir(parents=True, exist_ok=True)
    log, results = run_folder / f"{simulator}.log", run_folder / f"{simulator}.xml"
    results.unlink(missing_ok=True)
    started = time.perf_counter()
    try:
        _simulate(
            program,
            design.top,
            simulator,
            module.absolute(),
            results,
            log,
            # A build's own test leaves no byte code in the build.
            {
                BUILD_VARIABLE: str(Path(folder).absolute()),
                "PYTHONDONTWRITEBYTECODE": "1",
                **(variables or {}),
            },
            seed,
            waves,
            tests,
        )
    except (RuntimeError, SystemExit) as error:
        if not results.is_file():
            raise ToolError(f"the tests under {simulator} failed ({error}):\n{_tail(log)}") from None
    if not results.is_file():
        raise ToolError(f"the tests under {simulator} ended without results:\n{_tail(log)}")
    outcomes = tuple(_outcomes(results))
    if not outcomes:
        which = f" whose name has {tests!r}" if tests else ""
        raise ConfigurationError(
            f"{module.name} must hold cocotb tests, marked with @cocotb.test(), but has none{which}"
        )
    name = "dump.vcd" if simulator == "verilator" else f"{design.top}.fst"
    return TestRun(
        simulator=simulator,
        outcomes=outcomes,
        seconds=time.perf_counter() - started,
        log=log,
        waves=run_folder / name if waves else None,
    )


def _outcomes(results: Path) -> Iterator[TestOutcome]:
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        found = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
        if found is None:
            yield TestOutcome(case.attrib["name"], "")
        else:
            kind, message = found.attrib.get("type", ""), found.attrib.get("message", "")
            # rtlstm's own errors are sentences; of others the type says what they are.
            plain = kind == "AssertionError" or kind in _OWN_ERRORS
            said = message if plain and message else ": ".join(filter(None, (kind, message)))
            # cocotb rewrites assertions: the lines below the first one say what they were made of.
            first = said.partition("\n")[0].rstrip()
            yield TestOutcome(case.attrib["name"], first or "failed", found.text or "")


def _simulate(
    program: Path,
    top: str,
    simulator: Simulator,
    module: Path,
    results: Path,
    log: Path,
    variables: Mapping[str, str],
    seed: int,
    waves: bool,
    tests: str | None,
) -> None:
    """Run a cocotb module on a compiled design, in the log's folder."""
    from cocotb_tools.runner import get_runner

    plusargs = ["+verilator+rand+reset+2", f"+verilator+seed+{1 + seed % 0x7FFFFFFE}"]
    if simulator == "icarus":
        plusargs = [f"+dumpfile_path={log.parent / f'{top}.fst'}"] if waves else []
    path = list(sys.path)
    try:
        # The runner gives the simulator this process's path.
        sys.path.insert(0, str(module.parent))
        with simulator_environment(simulator, variables):
            get_runner(simulator).test(
                test_module=module.stem,
                hdl_toplevel=top,
                hdl_toplevel_lang="verilog",
                build_dir=program,
                test_dir=log.parent,
                results_xml=str(results),
                plusargs=plusargs,
                seed=seed,
                test_filter=tests,
                waves=waves,
                log_file=log,
            )
    finally:
        sys.path[:] = path


def _tail(log: Path) -> str:
    if not log.is_file():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").strip().splitlines()[-20:])


@contextmanager
def simulator_environment(simulator: Simulator, variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """Set the process's environment for cocotb's runner, which takes no other; then restore it.

    Not for use from several threads at once.
    """
    before = dict(os.environ)
    chosen = verilator_environment(before) if simulator == "verilator" else dict(before)
    # Under pytest the runner would end the process on a failure; we report it ourselves.
    for name in ("PYTEST_CURRENT_TEST", "WAVES", "GUI", "COCOTB_TEST_FILTER"):
        chosen.pop(name, None)
    try:
        os.environ.clear()
        os.environ.update(chosen | dict(variables or {}))
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
