"""Pytest's plug-in: builds and simulations as fixtures. docs/integrate.md explains it.

pytest loads it by itself where rtlstm is installed. Nothing but pytest is imported before a fixture is used.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from rtlstm.gen.builds.compiled import Build
    from rtlstm.sim.cocotb_run import TestRun

_SIMULATORS = ("icarus", "verilator")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; those that another plug-in has are that plug-in's."""
    group = parser.getgroup("rtlstm", "simulations of rtlstm's builds")
    for name, text in (
        ("--simulator", "icarus or verilator; by default icarus if it is installed, else verilator"),
        ("--rtlstm-waves", "when to write waveforms of a simulation: failure (default), always or never"),
    ):
        try:
            group.addoption(name, action="store", default=None, help=text)
        except ValueError:
            # The name is taken: its value is read all the same.
            continue


def _here(request: pytest.FixtureRequest, path: str | Path) -> Path:
    """A path that a test names: relative ones begin in the folder of the test's file."""
    return request.path.parent / path


@pytest.fixture
def rtlstm_build(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., "Build"]:
    """Return a function that makes a build of a model, or opens a build folder.

    It is called as ``rtlstm_build(model, **options)`` with what :func:`rtlstm.compile` takes, without a
    folder. A model is built once for the same content, options and version of rtlstm: the build is kept in
    the cache of simulators. Only what was prepared for training, builds for an existing device, and those
    with an option that cannot be pickled, such as a generator, are made anew by each call. A folder takes no
    options. Relative paths begin in the folder of the test's file.
    """

    def build(model: Any, **options: Any) -> "Build":
        import rtlstm
        from rtlstm.spec.errors import RtlstmError

        try:
            path = _here(request, model) if isinstance(model, str | Path) else None
            if path is not None and (path / "manifest.json").is_file():
                if options:
                    raise rtlstm.ConfigurationError(
                        f"{path} is a build already: leave out {', '.join(options)}"
                    )
                return rtlstm.Build(path)
            return _compiled(model if path is None else path, options, tmp_path_factory)
        except RtlstmError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None

    return build


def _compiled(model: Any, options: dict[str, Any], folders: pytest.TempPathFactory) -> "Build":
    """Make a build, or take it from the cache."""
    import pickle

    import rtlstm
    from rtlstm.gen.frontends import ReadOptions, read_if_needed
    from rtlstm.gen.quantise.quantiser import TrainedModel
    from rtlstm.spec.record import option_values
    from rtlstm.tools.cache import cached, digest

    def anew() -> "Build":
        return rtlstm.compile(model, folder=folders.mktemp("rtlstm") / "build", **options)

    if isinstance(model, TrainedModel) or options.get("device") is not None:
        # More than the network and the options determines these.
        return anew()
    chosen = {name: value for name, value in options.items() if name != "progress"}
    try:
        pickled = pickle.dumps(chosen)
    except (TypeError, AttributeError, pickle.PicklingError):
        # A generator or a function cannot be compared with what a build was made of.
        return anew()
    # What is read is part of the key, not the model itself: it may be in several files, and a module computes
    # with any Python.
    choices = option_values(ReadOptions, options)
    read = read_if_needed(model, ReadOptions(**choices) if choices else None, name=options.get("name"))
    sources = sorted(path for path in Path(rtlstm.__file__).parent.rglob("*") if path.suffix in (".py", ".v"))
    key = digest(pickle.dumps(read), pickled, *(path.read_bytes() for path in sources))

    def build(folder: Path) -> None:
        rtlstm.compile(model, folder=folder / "build", **options)

    return rtlstm.Build(cached("build", key, build) / "build")


class Simulation:
    """Runs the cocotb tests of a file; the fixture ``rtlstm_simulation`` of its pytest test."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._request, self._folder = request, folder

    @property
    def simulator(self) -> Literal["icarus", "verilator"]:
        """What ``--simulator`` says; by default Icarus if it is installed, else Verilator."""
        from shutil import which

        chosen = self._request.config.getoption("--simulator", default=None)
        if chosen is None:
            return "icarus" if which("iverilog") else "verilator"
        if chosen not in _SIMULATORS:
            pytest.fail(f"--simulator must be icarus or verilator, not {chosen}", pytrace=False)
        found: Literal["icarus", "verilator"] = chosen
        return found

    def __call__(
        self,
        build: "Build | str | Path",
        *,
        top: str | None = None,
        sources: Sequence[str | Path] = (),
        includes: Sequence[str | Path] = (),
        defines: Mapping[str, object] | None = None,
        parameters: Mapping[str, object] | None = None,
        module: str | Path | None = None,
        tests: str | None = None,
        seed: int = 1,
        variables: Mapping[str, str] | None = None,
    ) -> "TestRun":
        """Run the cocotb tests on a build, alone or inside a design. The pytest test fails if one fails.

        If one fails, all run again with waveforms, unless ``--rtlstm-waves`` says ``never``. The compiled
        simulation is kept in a cache. Relative paths begin in the folder of the test's file.

        Parameters
        ----------
        build
            A build, or its folder. :class:`rtlstm.cocotb.Core` takes it by default.
        top
            The top module; by default the build's core, or its bus wrapper if it has one.
        sources
            Verilog of the design around the core; the build's own file is added.
        includes
            Folders of files that sources include.
        defines, parameters
            Macros, and parameters of the top module.
        module
            The Python file with the cocotb tests; by default the test's own.
        tests
            A regular expression: only tests whose names have it are run.
        seed
            Of what is random in simulator and tests.
        variables
            More environment variables for the tests.
        """
        __tracebackhide__ = True
        from rtlstm.sim.cocotb_run import build_design, run_tests
        from rtlstm.spec.errors import RtlstmError

        waves = self._request.config.getoption("--rtlstm-waves", default=None) or "failure"
        if waves not in ("failure", "always", "never"):
            pytest.fail(f"--rtlstm-waves must be failure, always or never, not {waves}", pytrace=False)
        folder = _here(self._request, build if isinstance(build, str | Path) else build.folder)
        folder = folder.resolve()
        file = self._request.path if module is None else _here(self._request, module)
        try:
            design = build_design(
                folder,
                top=top,
                sources=[_here(self._request, path) for path in sources],
                includes=[_here(self._request, path) for path in includes],
                defines=defines,
                parameters=parameters,
            )

            def run(record: bool) -> "TestRun":
                return run_tests(
                    file,
                    folder,
                    design,
                    self.simulator,
                    self._folder,
                    waves=record,
                    seed=seed,
                    tests=tests,
                    variables=variables,
                )

            found = run(waves == "always")
            again = run(True) if not found.passed and waves == "failure" else None
        except RtlstmError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        if again is not None and again.passed:
            pytest.fail(
                f"{_report(found)}\nall passed when they ran again for waveforms ({again.waves}): what "
                "a test draws at random must come from cocotb's seed",
                pytrace=False,
            )
        if not found.passed:
            pytest.fail(_report(again or found), pytrace=False)
        return found


def _report(run: "TestRun") -> str:
    failed = [each for each in run.outcomes if each.failure]
    lines = [f"{len(failed)} of {len(run.outcomes)} cocotb tests failed under {run.simulator}"]
    for each in failed:
        lines += [f"{each.name}: {each.failure}", *each.traceback.rstrip().splitlines()]
    lines.append(f"log: {run.log}")
    if run.waves is not None and run.waves.is_file():
        lines.append(f"waveforms: {run.waves}")
    return "\n".join(lines)


@pytest.fixture
def rtlstm_simulation(request: pytest.FixtureRequest, tmp_path: Path) -> Simulation:
    """Run the cocotb tests of this file in a simulator: call it with a build; see :class:`Simulation`."""
    return Simulation(request, tmp_path)
