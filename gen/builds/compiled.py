"""Makes a build from a model in one call; the class of builds."""

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel

from rtlstm.boards.bitstream import Bitstream
from rtlstm.boards.catalogue import find_any_board
from rtlstm.boards.zynq import VivadoProject, ZynqBoard
from rtlstm.fpga.implementation import Implementation
from rtlstm.fpga.request import HardwareRequest
from rtlstm.gen.accuracy.records import ErrorReport
from rtlstm.gen.builds.accuracy import measure_build
from rtlstm.gen.builds.command_options import BitstreamOptions, ImplementOptions, SimulateOptions
from rtlstm.gen.builds.compare import Comparison, compare_build
from rtlstm.gen.builds.final_states import begin_in, load_final_states
from rtlstm.gen.builds.folder import check_target
from rtlstm.gen.builds.generate import BuildRequest, default_name, generate
from rtlstm.gen.builds.hardware import check_hardware, with_tables
from rtlstm.gen.builds.implement import implement
from rtlstm.gen.builds.on_board import OnBoard, OnZynq
from rtlstm.gen.builds.report import BuildReport
from rtlstm.gen.builds.report_html import Pictures
from rtlstm.gen.frontends import ReadOptions, read_if_needed
from rtlstm.gen.frontends.reading import ReadResult
from rtlstm.gen.quantise.calibration import read_data
from rtlstm.gen.quantise.quantiser import QuantizationSettings, TrainedModel, TrainedNetwork
from rtlstm.host import Accelerator
from rtlstm.host.accelerator import Outputs, html_table
from rtlstm.host.embeddings import Embedding, Tables, load_tables
from rtlstm.host.raw_values import as_array
from rtlstm.host.state import State
from rtlstm.spec.errors import BuildError, ConfigurationError, InputError, suggest, warn_caller
from rtlstm.spec.files import as_path
from rtlstm.spec.layout import Pad, count_of
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.parameters import Capacity
from rtlstm.spec.progress import Progress, shown
from rtlstm.spec.record import Record, declared_options, option_values, shows_options
from rtlstm.tools.cache import digest

OPTIONS = (ReadOptions, HardwareRequest, QuantizationSettings)
"""The records that declare the options of :func:`compile`: for model, hardware and numbers."""

Asked = TypeVar("Asked", bound=Record)


class Build:
    """A build folder: the hardware of one network, with methods to run, simulate and implement it.

    Parameters
    ----------
    folder
        A folder that :func:`compile` or ``rtlstm generate`` wrote.

    Raises
    ------
    BuildError
        If it is not a build, or is damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = as_path("the build folder", folder)
        self.manifest = Manifest.load(self.folder)
        self._contents = _contents(self.folder)

    @property
    def embeddings(self) -> tuple[Embedding, ...]:
        """The model's tables, in which tokens are looked up. Raises BuildError if they are damaged."""
        return self._tables.tables

    @cached_property
    def _tables(self) -> Tables:
        return load_tables(self._checked_folder(), self.manifest)

    def _checked_folder(self) -> Path:
        """Return the folder; BuildError if it holds no build by now, or another one."""
        if _contents(self.folder) != self._contents:
            Manifest.load(self.folder)
            raise BuildError(
                f"{self.folder} must hold the build of this object, but it was written again since; open it "
                "again with rtlstm.Build, or give each build a folder of its own (folder=)"
            )
        return self.folder

    @property
    def name(self) -> str:
        """Name of the Verilog's top module."""
        return self.manifest.name

    @property
    def inputs(self) -> int:
        """Number of input values of a time step; 1 if the core looks up tokens."""
        return self.manifest.input_port.values

    @property
    def outputs(self) -> int:
        """Number of output values of a time step."""
        return self.manifest.outputs

    @property
    def verilog(self) -> Path:
        """The core's Verilog, one file."""
        return self.folder / self.manifest.rtl

    def open(
        self, backend: str = "golden", *, verify: bool = True, progress: Progress | None = None
    ) -> Accelerator:
        """Open the build on a backend; see :meth:`rtlstm.host.Accelerator.open`."""
        return Accelerator.open(self._checked_folder(), backend, verify, progress)

    def run(
        self,
        x: ArrayLike,
        lengths: ArrayLike | None = None,
        state: Any = None,
        batch_first: bool | None = None,
        outputs: Outputs = "all",
        pad: Pad = "back",
    ) -> tuple[NDArray[Any], State]:
        """Run sequences through the golden model, which gives the same bits as the hardware.

        Arguments, results and errors are those of :meth:`rtlstm.host.Accelerator.run`.
        """
        with self.open() as accelerator:
            return accelerator.run(x, lengths, state, batch_first, outputs, pad)

    @shows_options(SimulateOptions)
    def simulate(
        self,
        x: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        *,
        batch_first: bool | None = None,
        pad: Pad = "back",
        progress: Progress | None = None,
        **options: Any,
    ) -> Comparison:
        """Run the Verilog in a simulator, and compare all words and cycles with golden model and prediction.

        Parameters
        ----------
        x
            As for :meth:`run`; with ``steps``, that many of its first steps, of front padding the last
            ones; if None, ``steps`` random steps from ``seed``.
        lengths
            Valid steps of each sequence.
        batch_first
            Whether ``x`` has the batch first; by default as the model has it.
        pad
            Where padding stands, as for :meth:`run`.
        options
            Those of ``rtlstm simulate`` by the same names:
            :class:`rtlstm.gen.builds.command_options.SimulateOptions`.

        Raises
        ------
        ConfigurationError
            If there is no such option, or it is out of range.
        InputError
            If ``x`` or ``lengths`` is no array, or does not fit the build.
        ToolError
            If there is no simulator.
        """
        asked = _checked(SimulateOptions, self.simulate, options)
        given = None if x is None else self._tables.look_up(x, lengths, batch_first, pad)
        valid = None if lengths is None else as_array("lengths", lengths)
        with shown(progress) as seen:
            return compare_build(self._checked_folder(), asked, given, valid, batch_first, seen, pad)[0]

    @shows_options(ImplementOptions)
    def implement(self, device: str, *, progress: Progress | None = None, **options: Any) -> Implementation:
        """Synthesise, place and route for a device; see :func:`rtlstm.gen.builds.implement.implement`.

        ``options`` are those of ``rtlstm implement`` by the same names:
        :class:`rtlstm.gen.builds.command_options.ImplementOptions`.
        """
        asked = _checked(ImplementOptions, self.implement, {"device": device} | options)
        with shown(progress) as seen:
            return implement(self._checked_folder(), asked, seen)

    @shows_options(BitstreamOptions)
    def bitstream(
        self, board: str, *, progress: Progress | None = None, **options: Any
    ) -> Bitstream | VivadoProject:
        """Make a bitstream for a board; for a Zynq board make the folder from which Vivado makes it.

        The result is in ``boards/BOARD`` of the build folder, under the name in the result's ``file``.
        ``options`` are those of ``rtlstm bitstream`` by the same names:
        :class:`rtlstm.gen.builds.command_options.BitstreamOptions`.

        Raises
        ------
        ConfigurationError
            If there is no such board, or the build does not fit it.
        ToolError
            If a tool is missing or fails.
        """
        asked = _checked(BitstreamOptions, self.bitstream, {"board": board} | options)
        target = find_any_board(asked.board)
        if isinstance(target, ZynqBoard):
            asked.check_vivado()
            return OnZynq.create(self._checked_folder(), target, asked.clock_mhz).write()
        on_board = OnBoard.asked(self._checked_folder(), asked)
        with shown(progress) as seen:
            return on_board.make_bitstream(asked.all_seeds, seen, insist=asked.insist)

    @shows_options(ReadOptions)
    def accuracy(
        self,
        x: ArrayLike,
        *,
        model: Any = None,
        calibration: ArrayLike | None = None,
        calibration_lengths: ArrayLike | None = None,
        calibration_state: Any = None,
        labels: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        state: Any = None,
        batch_first: bool | None = None,
        pad: Pad = "back",
        progress: Progress | None = None,
        **options: Any,
    ) -> ErrorReport:
        """Measure the build's errors against float, what causes them and what would help.

        The build's report gets them, too.

        Parameters
        ----------
        x
            Typical inputs, floats, ``(T, I)`` or ``(T, N, I)``; ``(N, T, I)`` if ``batch_first``, by default
            as the model has it; or tokens.
        model
            The model that the build was generated from, as :func:`compile` takes it; without it, what
            rounding the weights costs is not included, and other widths are not tried.
        calibration, calibration_lengths, calibration_state
            The data that calibrated the build, as :func:`compile` had them. Other widths are tried with them,
            as :func:`compile` would build these: ``advice.options`` of the result are for it.
        labels
            Of each step or of each sequence's last one: integers are classes, floats are targets; see
            :meth:`rtlstm.gen.accuracy.samples.Labels.of`.
        lengths
            Valid steps of each sequence, ``(N,)``.
        state
            The states in which the sequences of ``x`` begin, as :meth:`run` takes them; by default that of
            the model.
        pad
            Where padding stands in ``x``, in labels of each step and in ``calibration``, as for :meth:`run`.
        options
            How a model in a file is read, as for :func:`compile`: :class:`rtlstm.ReadOptions`.

        Raises
        ------
        InputError
            If inputs, labels or model do not fit the build.
        ModelError
            If the model cannot be read or is not supported.
        """
        reading = _checked(ReadOptions, self.accuracy, options)
        with shown(progress) as seen:
            return measure_build(
                self._checked_folder(),
                x,
                model=model,
                calibration=calibration,
                calibration_lengths=calibration_lengths,
                calibration_state=calibration_state,
                reading=reading,
                labels=labels,
                lengths=lengths,
                state=state,
                batch_first=batch_first,
                pad=pad,
                progress=seen,
            )

    def final_states(self) -> State:
        """Return the states in which the calibration data's sequences end, as :meth:`run` returns states.

        A build has them if final states are results: if no dense layer is its last one, or it was generated
        with ``final_states=True``.

        Raises
        ------
        BuildError
            If the build has none.
        """
        return load_final_states(self._checked_folder())

    def report(self) -> BuildReport:
        """Return the report: sizes, formats, cycles, accuracy; ``report.html`` shows it as a page."""
        return BuildReport.load(self._checked_folder())

    def pictures(self) -> Pictures:
        """Return the pictures of ``report.html``: a notebook shows them where they end a cell."""
        return Pictures.of_build(self.report(), self.manifest)

    def _facts(self) -> dict[str, str]:
        report, parameters = self.report(), self.manifest.parameters
        cycles, accuracy = report.cycles, report.accuracy
        against = f"error against {'the trained weights in ' * report.trained}float"
        return {
            "network": f"{self.inputs} inputs, {len(report.layers)} layers, {self.outputs} outputs",
            "array": f"{report.array}, {parameters.family}",
            "step latency": count_of(cycles.step_latency_cycles, "cycle"),
            "step interval": count_of(cycles.step_interval_cycles, "cycle"),
            against: accuracy.text,
            "report": str(self.folder / "report.html"),
        }

    def __repr__(self) -> str:
        sizes = f"{self.inputs} inputs, {self.outputs} outputs"
        return f"<rtlstm.Build {self.name}: {sizes}, in {self.folder}>"

    def _repr_html_(self) -> str:
        return html_table(f"rtlstm build {self.name}", self._facts())


def _contents(folder: Path) -> str:
    """Return a digest of a build: of its weights and its manifest, which has digests of the other files."""
    paths = [folder / name for name in ("manifest.json", "weights.bin")]
    return digest(*(path.read_bytes() if path.exists() else b"" for path in paths))


_ALONE = RLock()
"""Held while a build is made: conversion suspends the garbage collector of the whole process."""


@shows_options(*OPTIONS)
def compile(
    model: Any,
    *,
    calibration: ArrayLike | None = None,
    calibration_lengths: ArrayLike | None = None,
    calibration_state: Any = None,
    calibration_from: str | Path | Build | None = None,
    calibration_from_input: ArrayLike | None = None,
    calibration_from_lengths: ArrayLike | None = None,
    batch_first: bool | None = None,
    pad: Pad = "back",
    folder: str | Path | None = None,
    name: str | None = None,
    fit: str | None = None,
    device: str | Path | Build | None = None,
    capacities: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Build:
    """Make a build from a model: hardware, weights, manifest and report. The same input gives the same bytes.

    Threads wait for each other. A :class:`Build` whose folder is written again raises
    :class:`~rtlstm.BuildError` from then on.

    Parameters
    ----------
    model
        A path, a ``torch.nn.Module``, a result of :func:`rtlstm.read_model`, or a
        :class:`rtlstm.Network`; or what :func:`rtlstm.train.prepare` returned, whose integers, formats,
        calibration data and device, if it was prepared for one, are taken as they are.
    calibration
        Typical inputs, ``(T, I)`` or ``(T, N, I)``, which determine the number formats.
    calibration_lengths
        Valid steps of each of these sequences, ``(N,)``.
    calibration_state
        Initial state of each sequence, ``(h_0, c_0)`` as for :meth:`Build.run`; if None, the one in which the
        model begins, zeros for most. If that is not zeros, the build has it as ``state.npz``.
    calibration_from
        A build in whose final states the sequences of ``calibration`` begin, such as a decoder's encoder,
        instead of ``calibration_state``.
    calibration_from_input
        What that build reads, in its order of axes; by default its own calibration data.
    calibration_from_lengths
        Valid steps of each sequence of these inputs, ``(N,)``.
    batch_first
        Whether ``calibration`` has the batch first, ``(N, T, I)``; by default as the model has it.
    pad
        Where the padding of sequences shorter than T stands in ``calibration``, as for :meth:`Build.run`.
    folder
        The build folder: new, empty, or a build that is replaced; ``build/NAME`` by default.
    name
        Name of the Verilog's top module; by default from the model.
    fit
        A device or board. The fastest array that fits it is chosen.
    device
        A build whose hardware is used for this network's weights; it determines formats and sizes.
    capacities
        The capacities of a loadable program; those not given are chosen.
    options
        The options of ``rtlstm generate``, such as ``weight_bits=8`` for ``--weight-bits 8``: those for the
        part of the model (:class:`rtlstm.ReadOptions`), the hardware
        (:class:`rtlstm.fpga.request.HardwareRequest`) and numbers (:class:`rtlstm.QuantizationSettings`).
        ``docs/options.md`` lists them.

    Raises
    ------
    ModelError
        If the model cannot be read or is not supported.
    ConfigurationError
        If an option does not exist, or the requested hardware cannot be built.
    InputError
        If the calibration data do not fit the network.
    BuildError
        If ``folder`` holds anything but a build, or cannot be written.

    Warns
    -----
    NoteWarning
        What was assumed, what the reader of the model notes, and what is lost: as in the build's report.
    LayoutWarning
        If neither the model nor ``batch_first`` tells the order of calibration data's axes.
    """
    _check_options(compile, options, *OPTIONS)
    _check_types(name, fit, capacities, calibration, progress)
    trained = _trained(
        model,
        options,
        calibration=calibration,
        calibration_lengths=calibration_lengths,
        calibration_state=calibration_state,
        calibration_from=calibration_from,
        calibration_from_input=calibration_from_input,
        calibration_from_lengths=calibration_from_lengths,
        batch_first=batch_first,
        pad=None if pad == "back" else pad,
        device=device,
    )
    options = with_tables(options, capacities) if trained is None else options
    given_device = trained.device if trained is not None else device
    if given_device is not None:
        check_alone(options, fit=fit, name=name, capacities=capacities)
    tables = {} if trained is None else {"tables": trained.settings.tables}
    # What no bits would help is said before any message about bits.
    hardware = check_hardware(fit, option_values(HardwareRequest, options) | tables)
    settings = QuantizationSettings(**option_values(QuantizationSettings, options))
    notes: tuple[str, ...] = ()
    if folder is not None:
        check_target(as_path("the build folder", folder))
    if trained is not None:
        read, data = trained.read, trained.calibration
    else:
        reading = ReadOptions(**option_values(ReadOptions, options))
        by_name: Any = calibration
        if isinstance(by_name, Mapping) and not reading.input_widths:  # A module does not tell them.
            wide = {key: as_array("calibration", each) for key, each in by_name.items()}
            widths = tuple(f"{key}:{each.shape[-1]}" for key, each in wide.items() if each.dtype.kind == "f")
            reading = reading.replace(input_widths=widths)
        read = read_if_needed(model, reading, name=name)
        if calibration is not None:
            calibration = read.looked_up(calibration, "calibration", calibration_lengths, batch_first, pad)
        calibration_state, notes = begin_states(
            read,
            calibration,
            calibration_state,
            batch_first,
            calibration_from,
            calibration_from_input,
            calibration_from_lengths,
        )
        data = read_data(read, calibration, calibration_lengths, calibration_state, batch_first, pad)
    if folder is None:
        folder = Path("build") / (default_name(read) if name is None else name)
    target = as_path("the build folder", folder)
    request = BuildRequest(
        read=read,
        name=name,
        settings=settings,
        capacities=capacities,
        device=None if given_device is None else device_folder(given_device),
        data=data,
        trained=trained,
        notes=notes,
        **hardware,
    )
    with _ALONE, shown(progress) as seen:
        generate(request, target, seen)
    build = Build(target)
    report = build.report()
    for text in (*report.assumptions, *report.notes):
        warn_caller(text)
    return build


def begin_states(
    read: ReadResult,
    x: NDArray[Any] | None,
    state: Any,
    batch_first: bool | None,
    build: str | Path | Build | None = None,
    inputs: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
) -> tuple[Any, tuple[str, ...]]:
    """Return the state in which sequences of calibration data begin, as given or found, and notes on it.

    ``build``, ``inputs`` and ``lengths`` are the ``calibration_from`` options of :func:`compile`; its errors.
    """
    if build is None:
        if inputs is not None or lengths is not None:
            name = "calibration_from_input" if inputs is not None else "calibration_from_lengths"
            raise ConfigurationError(
                f"`{name}` belongs to a build in whose final states calibration data begin: give "
                "`calibration_from`, too, or leave it out"
            )
        return state if state is not None or x is None else read.calibration_state(x, batch_first), ()
    if state is not None:
        raise ConfigurationError(
            "`calibration_from` and `calibration_state` both give the states in which calibration data "
            "begin; leave one out"
        )
    if x is None:
        raise ConfigurationError(
            "`calibration_from` gives the states in which calibration data begin, but there are no data: "
            "give `calibration`, too, or leave it out"
        )
    if lengths is not None and inputs is None:
        raise ConfigurationError(
            "`calibration_from_lengths` are those of what the build reads: give `calibration_from_input`, "
            "too, or leave them out"
        )
    source = build if isinstance(build, Build) else Build(as_path("the build to calibrate from", build))
    if inputs is None:
        found = source.final_states()
    else:
        read_by = source._tables.look_up(inputs, lengths, name="calibration_from_input")
        h, c = source.run(read_by, lengths, outputs="none")[1]
        found = h, c
        if read_by.ndim == 2:
            found = tuple(each[None] for each in h), tuple(each[None] for each in c)
    first = read.report.batch_first if batch_first is None else batch_first
    begun = begin_in(read.network, x, source.folder, found, first, inputs is not None)
    return begun, (f"the calibration data begin in final states of the build {source.name!r}",)


def _trained(model: Any, options: Mapping[str, Any], **others: object) -> TrainedNetwork | None:
    """Return what was trained, if ``model`` was prepared for that; refuse what is decided already."""
    if not isinstance(model, TrainedModel):
        return None
    numbers = option_values(QuantizationSettings, options)
    given = [*option_values(ReadOptions, options), *sorted(numbers)]
    given += [name for name, value in others.items() if value is not None]
    if given:
        raise ConfigurationError(
            f"formats and numbers of a prepared model are those that it was trained with: leave out "
            f"{', '.join(given)}, or give them to prepare"
        )
    return model.trained_network()


def _checked(record: type[Asked], call: Callable[..., Any], options: Mapping[str, Any]) -> Asked:
    _check_options(call, options, record)
    return record(**options)


def _check_options(call: Callable[..., Any], options: Mapping[str, Any], *records: type[BaseModel]) -> None:
    declared = [each.name for each in declared_options(*records)]
    unknown = [key for key in options if key not in declared]
    if unknown:
        # Those of the signature, too: a misspelt ``folder`` arrives among the options.
        known = [name for name in inspect.signature(call).parameters if name != "self"]
        hint = suggest(unknown[0], sorted(known), most=2)
        if unknown[0] in ("loadable", "capacity") and "capacities" in known:
            hint = "a loadable core has `capacities={}`, or some with their numbers"
        raise ConfigurationError(f"{call.__name__} has no option {unknown[0]!r}; {hint}")


def _check_types(
    name: object, fit: object, capacities: Mapping[str, int] | None, calibration: object, progress: object
) -> None:
    for what, value in (("name", name), ("fit", fit)):
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(f"{what} must be a text, not {value!r}")
    if isinstance(calibration, str | Path):
        raise InputError(
            "calibration must be an array, not a path; load the file, for example with numpy.load"
        )
    if progress is not None and not callable(progress):
        raise ConfigurationError(f"progress must be a function of what, done and total, not {progress!r}")
    if capacities is None:
        return
    if not isinstance(capacities, Mapping) or not capacities.keys() <= Capacity.model_fields.keys():
        raise ConfigurationError(
            f"capacities must be a mapping from some of {', '.join(Capacity.model_fields)} to numbers, "
            f"not {capacities!r}"
        )
    for key, value in capacities.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise ConfigurationError(f"capacity {key} must be a whole number, not {value!r}")


def device_folder(device: str | Path | Build) -> Path:
    """Return the folder of a build whose hardware is used for other weights."""
    return device._checked_folder() if isinstance(device, Build) else as_path("the device's folder", device)


def check_alone(options: Mapping[str, Any], **others: object) -> None:
    """Refuse options that the device determines."""
    device_options = [*option_values(ReadOptions, options), "input_range"]
    given = [key for key in options if key not in device_options]
    given += [key for key, value in others.items() if value is not None]
    if given:
        names = ", ".join(f"`{name}`" for name in given)
        raise ConfigurationError(
            f"hardware, formats and name come from the device: leave out {names}, or `device`"
        )
