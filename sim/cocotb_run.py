"""The testbench: plays a scenario on a build's Verilog under cocotb and checks all of it.

A scenario loads the core through its bus, streams steps through it and reads memories back. The testbench
compares every word, every handshake and, if nothing stalls, every cycle. The simulators' programs are built
once and cached. cocotb makes every signal visible, which slows Verilator down: use
:mod:`rtlstm.sim.native` for long runs, and this testbench as an independent check of the protocol.
"""

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtlstm.sim.simulated_ports import PortSpec, StepCycles
from rtlstm.sim.simulator_names import Simulator
from rtlstm.sim.sources import SIMULATION, copy_sources, simulation_sources
from rtlstm.spec.build_files import check_rtl
from rtlstm.spec.buses import NO_BUS
from rtlstm.spec.errors import ConfigurationError, InputError, RtlstmError, ToolError
from rtlstm.spec.fixed import IntArray
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.progress import Progress
from rtlstm.tools.cache import cached, digest
from rtlstm.tools.toolchain import icarus, package_version, verilator, verilator_environment

__all__ = [
    "BUILD_VARIABLE",
    "BusRead",
    "BusWrite",
    "CocotbResult",
    "Design",
    "Scenario",
    "Simulator",
    "TestOutcome",
    "TestRun",
    "build_design",
    "build_testbench",
    "compile_design",
    "play",
    "run_cocotb",
    "run_tests",
    "simulator_environment",
]


BUILD_VARIABLE: Final = "RTLSTM_BUILD"
"""Names the build folder to the tests of a run."""

_INCLUDED = (".v", ".vh", ".sv", ".svh", ".inc")
_HEADERS = (".vh", ".svh")
_INCLUDE = re.compile(rb'`include\s+"([^"\n]+)"')
_OWN_ERRORS: Final = {"RtlstmError", *(kind.__name__ for kind in RtlstmError.__subclasses__())}
_VERILATOR = ("--x-assign", "unique", "--x-initial", "unique", "-Wno-fatal", "-Wno-lint")


@dataclass(frozen=True)
class BusWrite:
    """Write words to a register, one after the other."""

    register: int
    words: ArrayLike


@dataclass(frozen=True)
class BusRead:
    """Read a register once per word of ``words``, and compare."""

    register: int
    words: ArrayLike
    what: str = ""
    """Name of what is read, for the message of a failing check."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What the testbench plays and expects. All numbers are the core's integers."""

    streams: IntArray
    """Stream of each step, shape (steps,)."""
    x: IntArray
    """Inputs, shape (steps, inputs)."""
    y: IntArray
    """Expected outputs, shape (steps, outputs)."""
    before: Sequence[BusWrite | BusRead] = ()
    """Bus requests that load weights and state."""
    after: Sequence[BusWrite | BusRead] = ()
    """Bus requests that check the state after the last step."""
    latency: IntArray | None = None
    """Expected cycles of each step from its last input beat to its last output beat."""
    offered: IntArray | None = None
    """Expected cycle of each step's last output beat, counted from the first input beat of all."""
    ends: NDArray[np.bool_] | None = None
    """Whether a step is the last of its sequence, for a core that takes whole sequences, shape (steps,)."""
    p_in: float = 0.0
    """Probability, per cycle, that an input beat waits. Any stall switches the cycle checks off."""
    p_out: float = 0.0
    """Probability, per cycle, that an output beat waits."""
    seed: int = 1
    """Seed of the stalls, of the words that the core must ignore, and of Verilator's initial contents."""

    def save(self, path: Path, ports: PortSpec) -> None:
        """Write the file that the testbench inside the simulator reads."""
        empty = np.empty(0, dtype=np.int64)
        fields: dict[str, ArrayLike] = {
            "ports": json.dumps(asdict(ports)),
            "streams": np.asarray(self.streams, dtype=np.int64),
            "x": np.asarray(self.x, dtype=np.int64),
            "y": np.asarray(self.y, dtype=np.int64),
            "latency": empty if self.latency is None else self.latency,
            "offered": empty if self.offered is None else self.offered,
            "ends": empty if self.ends is None else np.asarray(self.ends, dtype=np.int64),
            "p_in": self.p_in,
            "p_out": self.p_out,
            "seed": self.seed,
        }
        for when, actions in (("before", self.before), ("after", self.after)):
            fields |= _flatten(when, actions)
        arrays = {name: np.asarray(field) for name, field in fields.items()}
        np.savez(path, allow_pickle=False, **arrays)

    def check(self, ports: PortSpec) -> None:
        """Check the arrays' shapes.

        Raises
        ------
        InputError
            If they do not fit each other or the core, or a probability is not in [0, 1).
        """
        steps = len(self.streams)
        for name, array, expected in (
            ("x", self.x, (steps, ports.inputs)),
            ("y", self.y, (steps, ports.outputs)),
            ("latency", self.latency, (steps,)),
            ("offered", self.offered, (steps,)),
            ("ends", self.ends, (steps,)),
        ):
            if array is not None and np.shape(array) != expected:
                raise InputError(f"{name} must have shape {expected}, not {np.shape(array)}")
        if not (0.0 <= self.p_in < 1.0 and 0.0 <= self.p_out < 1.0):
            raise InputError(
                f"stall probabilities must be at least 0 and below 1, not {self.p_in} and {self.p_out}"
            )


def _flatten(when: str, actions: Sequence[BusWrite | BusRead]) -> dict[str, ArrayLike]:
    words = [np.atleast_1d(np.asarray(action.words, dtype=np.int64)) for action in actions]
    counts = [len(part) for part in words]
    labels = [
        action.what or f"register {int(action.register)}" if isinstance(action, BusRead) else ""
        for action in actions
    ]
    numbered = [
        f"{label} (word {index})" if label else ""
        for label, count in zip(labels, counts, strict=True)
        for index in range(count)
    ]
    return {
        f"{when}_read": np.repeat([isinstance(action, BusRead) for action in actions], counts),
        f"{when}_register": np.repeat([int(action.register) for action in actions], counts),
        f"{when}_word": np.concatenate([np.empty(0, dtype=np.int64), *words]),
        f"{when}_label": np.array(numbered, dtype=np.str_),
    }


@dataclass(frozen=True)
class CocotbResult:
    """What a testbench run found."""

    simulator: Simulator
    words: int
    """Words compared, of outputs and bus reads."""
    different: int
    """Words that were not as expected."""
    cycles: int
    """Clock cycles simulated."""
    seconds: float
    """Time of the run, without the build."""
    step_cycles: StepCycles
    """Cycles in which each step was accepted and offered; -1 where the run ended before."""
    failures: tuple[str, ...]
    """The failed checks, as text; empty if every check held."""

    @property
    def passed(self) -> bool:
        """Whether every check held."""
        return not self.failures


def run_cocotb(
    folder: Path,
    manifest: Manifest,
    simulator: Simulator,
    scenario: Scenario,
    run_folder: Path | None = None,
    waves: bool = False,
    progress: Progress | None = None,
) -> CocotbResult:
    """Play a scenario on a build.

    Parameters
    ----------
    folder
        The build folder.
    run_folder
        Where logs and waves are written; by default a temporary folder.
    waves
        Record all signals into ``run_folder``.

    Raises
    ------
    ToolError
        If cocotb or the simulator is missing or crashes. A failed check does not raise: it is in
        the result.
    """
    ports = PortSpec.from_manifest(manifest)
    verilog = check_rtl(folder, manifest)
    return play(verilog, ports, simulator, scenario, run_folder, waves, progress)


def play(
    verilog: Path,
    ports: PortSpec,
    simulator: Simulator,
    scenario: Scenario,
    run_folder: Path | None = None,
    waves: bool = False,
    progress: Progress | None = None,
) -> CocotbResult:
    """Play a scenario on a Verilog file; see :func:`run_cocotb`."""
    scenario.check(ports)
    program = build_testbench(verilog, ports.name, ports.family, simulator, waves, progress)
    if run_folder is not None:
        run_folder.mkdir(parents=True, exist_ok=True)
        return _run(program, ports, simulator, scenario, run_folder.absolute(), waves)
    with tempfile.TemporaryDirectory(prefix="rtlstm-") as temporary:
        return _run(program, ports, simulator, scenario, Path(temporary), waves)


def build_testbench(
    verilog: Path,
    top: str,
    family: str,
    simulator: Simulator,
    waves: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Compile a module of a Verilog file, with its family's cells, for cocotb; see :func:`compile_design`."""
    return compile_design(Design(top, tuple(simulation_sources(verilog, family))), simulator, waves, progress)


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

        Raises
        ------
        ConfigurationError
            If a source is no Verilog, or a file or folder does not exist.
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

    Raises
    ------
    ConfigurationError
        If a source cannot be used.
    ToolError
        If cocotb or the simulator is missing or fails.
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
        if progress:
            progress(what, 0, 1)
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
        if progress:
            progress(what, 1, 1)

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

    Parameters
    ----------
    folder
        The build.
    top
        The top module; by default what a system instantiates of the build, its bus wrapper if it has one.
    sources
        Verilog of the design around the core; the build's own file is added.
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
    """Run the cocotb tests of a Python file on a design.

    Parameters
    ----------
    module
        The Python file.
    folder
        The build that :class:`rtlstm.cocotb.Core` takes by default.
    run_folder
        Where log, results and waveforms are written; the simulator's current folder.
    tests
        A regular expression: only tests whose names have it are run.
    variables
        More environment variables for the tests.

    Raises
    ------
    ConfigurationError
        If the file holds no such test, or the design cannot be used.
    ToolError
        If cocotb or the simulator is missing, or fails.
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
            module.stem,
            results,
            log,
            {BUILD_VARIABLE: str(Path(folder).absolute()), **(variables or {})},
            seed,
            waves,
            tests,
            module.absolute().parent,
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
    module: str,
    results: Path,
    log: Path,
    variables: Mapping[str, str],
    seed: int,
    waves: bool,
    tests: str | None = None,
    python_path: Path | None = None,
) -> None:
    """Run a cocotb module on a compiled design, in the log's folder."""
    from cocotb_tools.runner import get_runner

    plusargs = ["+verilator+rand+reset+2", f"+verilator+seed+{1 + seed % 0x7FFFFFFE}"]
    if simulator == "icarus":
        plusargs = [f"+dumpfile_path={log.parent / f'{top}.fst'}"] if waves else []
    path = list(sys.path)
    try:
        if python_path is not None:
            # The runner gives the simulator this process's path.
            sys.path.insert(0, str(python_path))
        with simulator_environment(simulator, variables):
            get_runner(simulator).test(
                test_module=module,
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


def _run(
    program: Path,
    ports: PortSpec,
    simulator: Simulator,
    scenario: Scenario,
    folder: Path,
    waves: bool,
) -> CocotbResult:
    from rtlstm.sim import cocotb_testbench as names

    log, outcome = folder / "run.log", folder / "result.json"
    outcome.unlink(missing_ok=True)
    scenario.save(folder / "scenario.npz", ports)
    variables = {
        names.SCENARIO_VARIABLE: str(folder / "scenario.npz"),
        names.RESULT_VARIABLE: str(outcome),
    }
    started = time.perf_counter()
    try:
        results, module = folder / "results.xml", "rtlstm.sim.cocotb_testbench"
        _simulate(program, ports.name, simulator, module, results, log, variables, scenario.seed, waves)
    except (RuntimeError, SystemExit) as error:
        if not outcome.is_file():
            raise ToolError(f"the {simulator} testbench failed ({error}):\n{_tail(log)}") from None
    if not outcome.is_file():
        raise ToolError(f"the {simulator} testbench ended without a result:\n{_tail(log)}")
    found = json.loads(outcome.read_text())
    return CocotbResult(
        simulator=simulator,
        words=found["words"],
        different=found["different"],
        cycles=found["cycles"],
        seconds=time.perf_counter() - started,
        step_cycles=StepCycles(*(_cycles(found[name]) for name in StepCycles._fields)),
        failures=tuple(found["failures"]),
    )


def _cycles(numbers: list[int]) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


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
