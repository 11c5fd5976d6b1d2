"""Generates a complete build folder from a network."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from rtlstm.fpga.devices import devices
from rtlstm.fpga.estimate import Estimate
from rtlstm.fpga.fit import Fit, FitRequest, NothingFitsError
from rtlstm.gen.builds.advice import (
    find_fit_advice,
    keep_integers,
    least_weight_bits,
    refuse_fit_anyway,
    scales_note,
    scales_refused_note,
)
from rtlstm.gen.builds.final_states import final_states_file, states_file
from rtlstm.gen.builds.folder import (
    FINAL_STATES,
    ReplacedWarning,
    check_target,
    former_results,
    new_folder,
    write_files,
)
from rtlstm.gen.builds.hardware import (
    SPATIAL,
    ArrayRequest,
    Asked,
    Design,
    check_constants,
    choose_sizes,
    device_hardware,
    device_settings,
    hardware_options,
    quantised_for,
    refuse_capacities,
    table_settings,
    with_capacity,
)
from rtlstm.gen.builds.in_space import fit_in_space, space_note
from rtlstm.gen.builds.report import BuildReport, create_report, find_fit
from rtlstm.gen.builds.report_html import render_report
from rtlstm.gen.frontends import ReadResult, read_if_needed
from rtlstm.gen.ip import IpPaths
from rtlstm.gen.ip.files import Vectors, bill_of_materials, c_header, ip_files
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import (
    QuantizationSettings,
    TrainedNetwork,
    choose_formats,
    quantise,
    quantise_with,
)
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.host.device import check_loadable, refuse_spatial
from rtlstm.host.embeddings import embeddings_file
from rtlstm.host.raw_values import quantise as quantise_values
from rtlstm.spec.errors import BuildError, ConfigurationError, warn_caller
from rtlstm.spec.family import GENERIC
from rtlstm.spec.inventory import FEWEST_ROWS, constant_tables
from rtlstm.spec.manifest import C_HEADER, EMBEDDINGS, INITIAL_STATE, Manifest, read_verilog
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.packing import find_kept, pack
from rtlstm.spec.parameters import MOST_TOKENS, Parameters
from rtlstm.spec.program.passes import no_loadable_program
from rtlstm.spec.program.spatial import BEHIND_SUMS
from rtlstm.spec.progress import Progress, tell

_TRAINED = (
    "the network was trained in this arithmetic, and its integers are taken as they are: errors are those "
    "against the same weights in floats"
)
_IMAGE = "weights.bin"
_STAGES = ("quantise", "write Verilog", "compare with float", "write files")


@dataclass(frozen=True, kw_only=True, eq=False)
class BuildRequest:
    """What a build is made of.

    Its hardware is its own, or, with ``device``, that of another build: ``name``, ``parameters``, ``fit``,
    ``array``, ``capacities`` and all of ``settings`` but the input's range are that build's then.
    """

    read: ReadResult
    """The model; that of ``trained``, if it is given. The build has its tables for the driver, and the state
    in which it begins as ``state.npz``, in the form that ``rtlstm run --state`` takes for one sequence."""
    name: str | None = None
    """Name of the top module; by default from the model file's name, else from the network's."""
    settings: QuantizationSettings = field(default_factory=QuantizationSettings)
    parameters: Parameters | None = None
    """The hardware's sizes."""
    fit: FitRequest | None = None
    """A device or board for which the parameters are chosen, instead of ``parameters``."""
    array: ArrayRequest | None = None
    """Chosen sizes of the array, instead of ``parameters``; the other sizes are the smallest that are as fast
    as 4 lanes x 32 (:mod:`rtlstm.gen.builds.hardware`). By default all sizes are chosen so."""
    capacities: Mapping[str, int] | None = None
    """The program is loadable, with these of :class:`rtlstm.spec.parameters.Capacity`, and for the others
    what the network needs, up to the next power of two; None for a fixed program."""
    device: Path | None = None
    """Another build, whose device the image can be loaded into. A loadable device takes any network that
    fits. One with a fixed program takes only other weights of its network, those of a retrained model."""
    data: Calibration | None = None
    """Typical inputs; those of ``trained``, if it is given."""
    trained: TrainedNetwork | None = None
    """The network with integers that are taken as they are, and with its own settings.
    With ``device``, it must have been trained for that."""
    notes: tuple[str, ...] = ()
    """Notes for the report."""

    @property
    def network(self) -> Network:
        """The network."""
        return self.read.network

    @property
    def in_space(self) -> bool:
        """Whether the build is a spatial one."""
        return any(each is not None and each.array == "spatial" for each in (self.array, self.fit))

    @property
    def hardware(self) -> TargetHardware | None:
        """What the network is quantised for; None for hardware for it alone."""
        if self.in_space:
            return SPATIAL
        given = self.parameters or self.array
        family = self.fit.chosen.device.family if self.fit else given and given.family
        return quantised_for(self.settings, family or GENERIC, self.capacities)

    def checked(self) -> "BuildRequest":
        """Refuse choices of hardware that cannot be made together; return the request with the rows of the
        core's table of tokens, if it is to have one, and with the range of a table's rows.

        Raises ConfigurationError if there are such, or errors as those of :attr:`token_rows`.
        """
        if sum(given is not None for given in (self.parameters, self.fit, self.array)) > 1:
            raise ConfigurationError(
                "parameters, fit and array all choose the hardware's sizes; give one of them"
            )
        headroom_bits = self.numbers.headroom_bits
        if headroom_bits:
            refuse_capacities(
                self.capacities,
                "`headroom_bits` is for fixed programs: the headroom of a loadable device is a "
                f"capacity, give `capacities={{'headroom': {headroom_bits}}}`",
            )
        if self.fit is not None and self.fit.skip_zeros:
            raise ConfigurationError(
                "`fit` does not count on skipped words when it chooses an array: leave it out and "
                "state `lanes` and `macs`, or leave out `skip_zeros`"
            )
        if self.in_space:
            check_constants(self.capacities, headroom_bits)
        if self.array is not None and self.array.skip_zeros:
            refuse_capacities(self.capacities, no_loadable_program())
        if self.trained is not None:
            refuse_capacities(
                self.capacities,
                "a trained network is built with hardware of its own, because its formats are part of what "
                "was trained: leave out `capacities`",
            )
        if self.fit is not None:
            refuse_capacities(
                self.capacities,
                "`fit` does not choose arrays for loadable cores yet: state `lanes` and `macs`",
            )
        if self.fit is not None and self.fit.fit_anyway and self.trained is not None:
            refuse_fit_anyway()
        rows = {"token_rows": self.token_rows}
        fit, array = self.fit, self.array
        return replace(
            self,
            settings=table_settings(self.settings, self.read, self.data is not None),
            fit=fit and fit.model_copy(update=rows),
            array=array and array.model_copy(update=rows),
        )

    @property
    def token_rows(self) -> int:
        """Tokens that the core is asked to look up; 0 if the driver does.

        Raises ConfigurationError if the model has not one table alone.
        """
        asked, network, tables = self.fit or self.array, self.network, self.read.embeddings
        if asked is None or asked.token_table == "host":
            return 0
        remedy = "leave `token_table` out, so that the driver looks tokens up"
        if not tables:
            raise ConfigurationError(
                f"`token_table='core'` needs a model that begins with an embedding, but this one has none; "
                f"{remedy}"
            )
        rows, width = tables[0].table.shape
        alone = len(tables) == 1 and not network.input_parts
        if not alone or network.frames > 1 or any(network.window) or width != network.inputs:
            names = ", ".join(each.name for each in tables)
            raise ConfigurationError(
                "`token_table='core'` needs a network that reads a row of one table in each step and nothing "
                f"beside it, but this one reads {network.inputs} values of {names} ({width} wide) and of "
                f"what stands beside; {remedy}"
            )
        if not 2 <= rows <= MOST_TOKENS:
            raise ConfigurationError(
                f"`token_table='core'` takes tables of 2 to {MOST_TOKENS} rows, but this one has {rows}; "
                f"{remedy}"
            )
        return int(rows)

    def with_tokens(self, design: "Design") -> "Design":
        """Return the design with the table that the core looks up, if it does, in codes of the input."""
        numerics, tables = design.quantised.numerics, [each.table for each in self.read.embeddings]
        # Another model for a device is refused with its image.
        fits = len(tables) == 1 and tables[0].shape[1] == self.network.inputs
        if not design.manifest.parameters.token_rows or not fits:
            return design
        form = numerics.input
        codes, saturated = quantise_values("the table", tables[0], form, form.lowest, numerics.scale_input)
        notes = (*design.notes, f"the core looks up {len(codes):,} tokens: a step's input is one's number")
        if saturated:
            notes += (
                f"{saturated:,} of {codes.size:,} values of the table of tokens saturate in the format "
                f"{form}; calibrate with tokens that cover it, or give `input_range`",
            )
        return replace(design, quantised=replace(design.quantised, tokens=codes), notes=notes)

    @property
    def numbers(self) -> QuantizationSettings:
        """The settings of the numbers: those that a network was trained with, if it was."""
        return self.settings if self.trained is None else self.trained.settings

    def sizes(self, name: str, quantised: QuantizedNetwork) -> Parameters:
        """Return the hardware's sizes, given or chosen; errors as those of :func:`choose_sizes`."""
        asked = self.fit or self.array or ArrayRequest(tables=self.numbers.tables)
        return self.parameters or choose_sizes(name, quantised, asked)[0]

    def settled(self, name: str, quantised: QuantizedNetwork) -> tuple["BuildRequest", Fit | None]:
        """Return the request with the spatial build that is chosen for its device, if it asks for one.

        Errors as those of :func:`~rtlstm.gen.builds.in_space.fit_in_space`.
        """
        if self.fit is None or not self.in_space:
            return self, None
        array, fit = fit_in_space(name, quantised, self.fit)
        return replace(self, array=array, fit=None), fit

    def manifest(
        self, name: str, quantised: QuantizedNetwork, parameters: Parameters
    ) -> tuple[Manifest, tuple[str, ...]]:
        """Return the manifest of a network on hardware of these sizes, and what to say of it.

        Raises ConfigurationError if the hardware cannot be built.
        """
        whole = with_capacity(name, quantised, parameters, self.capacities)
        plan = None if self.array is None else self.array.spatial_plan(quantised)
        manifest = Manifest.of(name, quantised, whole, spatial=plan)
        in_ram = (each.memory.style == "block" for each in constant_tables(manifest))
        if plan is not None and self.array and self.array.table_memory == "ram" and not any(in_ram):
            *most, last = BEHIND_SUMS
            raise ConfigurationError(
                f"`table_memory='ram'` needs tables of {FEWEST_ROWS} rows or more behind a register, as an "
                f"LSTM's gates have with `loop_registers` of {', '.join(map(str, most))} or {last}, but this "
                f"build with {plan.loop_registers} has none: leave it out"
            )
        skips = self.array is not None and self.array.skip_zeros
        return _skip_zeros(quantised, manifest) if skips else (manifest, ())


def generate_build(
    model: Network | ReadResult,
    folder: Path,
    *,
    calibration: Any = None,
    calibration_lengths: Any = None,
    calibration_state: Any = None,
    batch_first: Any = None,
    progress: Progress | None = None,
    **chosen: Any,
) -> Manifest:
    """Generate a build as :func:`generate` does; ``chosen`` are fields of :class:`BuildRequest`."""
    read = read_if_needed(model)
    given = calibration, calibration_lengths, calibration_state, batch_first
    data = Calibration.given(read.network, *given, known=read.report.batch_first)
    return generate(BuildRequest(read=read, data=data, **chosen), folder, progress)


def generate(request: BuildRequest, folder: Path, progress: Progress | None = None) -> Manifest:
    """Generate a build: manifest, Verilog, weight image and report. Same input, same bytes.

    ``folder`` is new, empty, or a build that is replaced. It appears or changes only when everything is done.
    Results of ``rtlstm implement`` and ``bitstream`` in a former build are removed, each with a
    ``ReplacedWarning``. ``progress`` is called as ``progress(what, done, total)``.

    Raises BuildError if ``folder`` holds anything but a build, or the device's folder is no build. Raises
    ConfigurationError if name, formats, parameters or capacities cannot be built, or nothing fits the device.
    If an existing device cannot hold the network: the message names the capacity or, for a fixed program, the
    layer that differs or the sum that does not fit. If it has changed since the network was prepared for it.
    Raises ToolError if Yosys fails.
    """
    target, former = check_target(folder), former_results(folder)
    network, trained = request.network, request.trained
    device = None if request.device is None else _Device.load(request.device, target)
    if device is None:
        name = default_name(request.read) if request.name is None else check_build_name(request.name)
        request = request.checked()
    stage = _stages(progress)
    with new_folder(target) as work:
        stage(0)
        design = _new_design(request, name, progress) if device is None else _design_for(device, request)
        design = request.with_tokens(design)
        manifest = design.manifest.replace(
            frames=network.frames,
            window=network.window,
            batch_first=request.read.report.batch_first,
            parts=network.parts,
            embeddings=tuple(each.shape for each in request.read.embeddings),
            input_parts=network.input_parts,
        )
        if device is not None:
            check_loadable(manifest, device.manifest)
        image = pack(design.quantised, manifest).to_bytes()
        stage(1)
        verilog = core_to_verilog(manifest) if device is None else device.verilog
        stage(2)
        notes = (*((_TRAINED,) if trained else ()), *design.notes, *request.notes)
        design = replace(design, manifest=manifest, notes=notes)
        report = create_report(
            request.read, design, request.data, loaded=device is not None, trained=trained is not None
        )
        stage(3)
        fit = design.fit if device is None else find_fit(device.folder)
        expected = None if fit is None else fit.estimate
        finals = final_states_file(network, design.quantised, request.data, design.settings.final_states)
        manifest = _write(work, manifest, design.quantised, image, verilog, report, request, expected, finals)
    stage(4)
    for result in former:
        warn_caller(result.text, ReplacedWarning)
    return manifest


def choose_design(request: BuildRequest) -> Design:
    """Choose formats and hardware as :func:`generate` does, and write nothing.

    Raises ConfigurationError as :func:`generate` does; it is a NothingFitsError if nothing fits the device.
    """
    request = request.checked()
    name = default_name(request.read) if request.name is None else request.name
    return _new_design(request, name, None)


def _new_design(request: BuildRequest, name: str, progress: Progress | None) -> Design:
    """Quantise a network and choose hardware for it: with scales of rows, if they keep a model's integers."""
    own_hardware = request.trained is None and request.capacities is None
    settings = keep_integers(request.settings, request.read.report) if own_hardware else None
    if settings is None:
        return _design(request, name, progress)
    try:
        design = _design(replace(request, settings=settings), name, progress, advise=False)
    except ConfigurationError as refused:
        design = _design(request, name, progress)
        note = scales_refused_note(settings, refused)
    else:
        note = scales_note(settings)
    return replace(design, notes=(*design.notes, note))


def _design(request: BuildRequest, name: str, progress: Progress | None, advise: bool = True) -> Design:
    """Quantise a network and choose hardware for it; ``advise`` looks for other settings if nothing fits."""
    network, trained, data = request.network, request.trained, request.data
    settings, choices, hardware = request.settings, None, None
    begin = request.read.initial_state
    if trained is not None:
        settings, quantised = trained.settings, trained.quantised()
    else:
        if request.fit is not None:
            bits = least_weight_bits(settings) if advise else settings.most_weight_bits
            try:  # At once: to quantise and search takes minutes for a network that no array makes fit.
                request.fit.check_weights(name, network.weight_count, bits)
            except NothingFitsError as refused:
                raise refused.advised("choose a larger device") from None
        hardware = request.hardware
        choices = choose_formats(network, settings, data, hardware, initial_state=begin, progress=progress)
        quantised = quantise_with(network, settings, choices, hardware)
    hardware_given, device = hardware_options(request.fit or request.array), request.fit
    notes: tuple[str, ...] = ()
    request, fit = request.settled(name, quantised)
    if request.fit is not None:
        try:
            parameters, fit = choose_sizes(name, quantised, request.fit)
        except NothingFitsError as refused:
            if not advise:
                raise
            advice = find_fit_advice(name, network, settings, data, request.fit, progress, begin)
            if advice is None or not request.fit.fit_anyway:
                larger = "choose a larger device" + ", or leave `token_table` out" * bool(
                    request.fit.token_rows
                )
                other = larger if advice is None else advice.text
                raise refused.advised(other) from None
            settings, choices, quantised = advice.settings, advice.choices, advice.quantised
            parameters, fit = advice.parameters, advice.fit
            hardware_given = {key: hardware_given[key] for key in hardware_given if key not in advice.less}
            notes = (f"{refused}; {advice.taken}",)
    else:
        parameters = request.sizes(name, quantised)
    manifest, skipped = request.manifest(name, quantised, parameters)
    model_name = _model_name(request.read)
    if request.name is None and (renamed := explain_build_name(model_name)) is not None:
        notes += (renamed,)
    notes += _device_notes(parameters.family, device)
    notes += skipped
    if request.fit is not None and fit is not None and choices is not None:
        notes += space_note(network, settings, choices, request.fit, manifest, fit.clock_mhz)
    if choices is None:
        return Design(settings, quantised, manifest, notes, fit)
    asked = Asked(
        settings=settings,
        hardware=None if request.parameters else hardware_given,
        capacities=request.capacities,
        name=request.name,
        calibration=None if data is None else data.digest,
    )
    return Design(settings, quantised, manifest, notes, fit, asked, choices.trials)


@dataclass(frozen=True)
class _Device:
    """The build whose hardware the new build has."""

    folder: Path
    manifest: Manifest

    @classmethod
    def load(cls, folder: Path, target: Path) -> Self:
        manifest = Manifest.load(folder)
        refuse_spatial(manifest)
        if target == Path(folder).resolve():
            raise BuildError(
                f"the build must not replace the device {folder} that it is for; choose another folder"
            )
        return cls(folder, manifest)

    @property
    def verilog(self) -> str:
        return read_verilog(self.folder, self.manifest)


def _design_for(device: _Device, request: BuildRequest) -> Design:
    there = device.manifest
    hardware, trained = device_hardware(there), request.trained
    if trained is not None and trained.hardware != hardware:
        raise ConfigurationError(
            f"the device must be the one that the network was trained for, but {device.folder} has other "
            "layers or formats now; prepare the network for it again"
        )
    if trained is not None:
        settings, quantised = trained.settings, trained.quantised()
    else:
        settings = device_settings(there, request.settings.input_range)
        given, begin = request.data, request.read.initial_state
        quantised = quantise(request.network, settings, given, hardware=hardware, initial_state=begin)
    manifest = Manifest.of(there.name, quantised, there.parameters, kept=there.program.kept)
    return Design(settings, quantised, manifest)


def _device_notes(family: str, fit: FitRequest | None) -> tuple[str, ...]:
    """Return the note of the device to fit, or the one that all devices of the family have."""
    every = devices().values() if fit is None else (fit.chosen.device,)
    found = {each.note for each in every if each.family == family}
    return tuple(found) if len(found) == 1 and "" not in found else ()


def _skip_zeros(quantised: QuantizedNetwork, manifest: Manifest) -> tuple[Manifest, tuple[str, ...]]:
    """Return the manifest of the same build without words of weights that are zero, and what to say of it."""
    kept = find_kept(quantised, manifest)
    found = Manifest.of(manifest.name, quantised, manifest.parameters, kept)
    words, parameters = manifest.program.weight_rows, manifest.parameters
    skipped = words - found.program.weight_rows
    tile = f"a group of {parameters.lanes} rows x {parameters.macs} columns"
    if not skipped:
        return found, (f"no word of the weights is skipped: each has a weight in {tile} that is not zero",)
    return found, (
        f"{skipped:,} of {words:,} words of the weights are skipped, each zero in {tile}: weights that are "
        "loaded later must be zero there, too",
    )


_LONGEST = 64

KEYWORDS = frozenset(
    """
    accept_on alias always always_comb always_ff always_latch and assert assign assume automatic
    before begin bind bins binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle
    checker class clocking cmos config const constraint context continue cover covergroup coverpoint
    cross deassign default defparam design disable dist do edge else end endcase endchecker endclass
    endclocking endconfig endfunction endgenerate endgroup endinterface endmodule endpackage
    endprimitive endprogram endproperty endsequence endspecify endtable endtask enum event eventually
    expect export extends extern final first_match for force foreach forever fork forkjoin function
    generate genvar global highz0 highz1 if iff ifnone ignore_bins illegal_bins implements implies
    import incdir include initial inout input inside instance int integer interconnect interface
    intersect join join_any join_none large let liblist library local localparam logic longint
    macromodule matches medium modport module nand negedge nettype new nexttime nmos nor
    noshowcancelled not notif0 notif1 null or output package packed parameter pmos posedge primitive
    priority program property protected pull0 pull1 pulldown pullup pulsestyle_ondetect
    pulsestyle_onevent pure rand randc randcase randsequence rcmos real realtime ref reg reject_on
    release repeat restrict return rnmos rpmos rtran rtranif0 rtranif1 s_always s_eventually
    s_nexttime s_until s_until_with scalared sequence shortint shortreal showcancelled signed small
    soft solve specify specparam static string strong strong0 strong1 struct super supply0 supply1
    sync_accept_on sync_reject_on table tagged task this throughout time timeprecision timeunit tran
    tranif0 tranif1 tri tri0 tri1 triand trior trireg type typedef union unique unique0 unsigned until
    until_with untyped use uwire var vectored virtual void wait wait_order wand weak weak0 weak1 while
    wildcard wire with within wor xnor xor
    """.split()  # noqa: SIM905
)
"""Keywords of Verilog and SystemVerilog (tools read the one as the other)."""

_PREFIX = "rtlstm_"
"""Frames around builds begin with it: harness, board, system; so do primitives before they have an owner."""


def _is_reserved(name: str) -> bool:
    return name.lower() in KEYWORDS or name.lower().startswith(_PREFIX)


def _clean(text: str) -> str:
    """Leave what a name may hold, and begin it with a letter."""
    clean = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")[:_LONGEST].rstrip("_")
    if not clean or not clean[0].isalpha() or clean.lower().startswith(_PREFIX):
        clean = f"lstm_{clean}"[:_LONGEST].rstrip("_")
    return clean


def derive_build_name(text: str) -> str:
    """Turn a model's file name, or any text, into a build name."""
    clean = _clean(text)
    return f"{clean}_core" if _is_reserved(clean) else clean


def explain_build_name(text: str) -> str | None:
    """Say why the name that is derived from a text has an addition; None if it has none."""
    clean = _clean(text)
    if not _is_reserved(clean):
        return None
    name = derive_build_name(text)
    return f"the build is named {name}, because {clean!r} is a word that Verilog tools reserve"


def check_build_name(name: str) -> str:
    """Return a name that a user chose, if it can be a Verilog module's.

    Raises ConfigurationError if it cannot.
    """
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) or len(name) > _LONGEST:
        raise ConfigurationError(
            f"a build's name must begin with a letter and hold at most {_LONGEST} letters, digits and "
            f"underscores, not {name!r}; try {derive_build_name(name)!r}"
        )
    if _is_reserved(name):
        raise ConfigurationError(
            f"a build's name must not be a word that Verilog tools reserve, nor begin with {_PREFIX}, as "
            f"{name!r}; try {derive_build_name(name)!r}"
        )
    return name


def default_name(read: ReadResult) -> str:
    """Return the default name of a build: from the model file's name, else from the network's."""
    return derive_build_name(_model_name(read))


def _model_name(read: ReadResult) -> str:
    return read.report.source.split(".")[0] or read.network.name


def _stages(progress: Progress | None) -> Callable[[int], None]:
    def begin(stage: int) -> None:
        tell(progress, _STAGES[min(stage, len(_STAGES) - 1)], stage, len(_STAGES))

    return begin


def _write(
    work: Path,
    manifest: Manifest,
    quantised: QuantizedNetwork,
    image: bytes,
    verilog: str,
    report: BuildReport,
    request: BuildRequest,
    expected: Estimate | None,
    final_states: bytes | None,
) -> Manifest:
    """Write all files; return the manifest, which lists those that are compiled, initial state and tables."""
    initial_state, embeddings = request.read.initial_state, request.read.embeddings
    compiled = {manifest.rtl: verilog, C_HEADER: c_header(manifest, initial_state)}
    arrays = {} if initial_state is None else {INITIAL_STATE: states_file(initial_state)}
    if embeddings:
        arrays[EMBEDDINGS] = embeddings_file(embeddings)
    manifest = manifest.with_files({**compiled, **arrays})
    texts = {
        "manifest.json": manifest.to_json(),
        **compiled,
        **ip_files(
            manifest,
            verilog,
            Vectors.create(quantised, manifest),
            None if expected is None else expected.fmax_mhz,
            assumed=expected is not None and expected.clock_assumed,
        ),
    }
    contents = {name: text.encode() for name, text in texts.items()} | {_IMAGE: image, **arrays}
    bill = bill_of_materials(manifest, contents, (_IMAGE, INITIAL_STATE, EMBEDDINGS))
    # The bill leaves these out: other commands add to them.
    reports = {"report.json": report.to_json(), "report.html": render_report(report, manifest)}
    finals = {} if final_states is None else {FINAL_STATES: final_states}
    write_files(work, {**contents, **reports, **finals, IpPaths(manifest.name).bill: bill})
    return manifest
