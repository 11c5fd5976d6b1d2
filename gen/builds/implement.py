"""Implements a build on a device: synthesis, place and route, report."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rtlstm.boards.catalogue import find_device_alone
from rtlstm.fpga.estimate import Estimate, check_estimate, check_inventory, estimate, unpacked_registers
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.families.device import Chosen, FpgaDevice
from rtlstm.fpga.implementation import Implementation, folder_name
from rtlstm.fpga.place_route import (
    Routed,
    choose_tools,
    default_jobs,
    nextpnr_options,
    place_and_route,
    route_seeds,
)
from rtlstm.fpga.resources import check_chains, check_fit
from rtlstm.fpga.synthesis import NETLIST, synthesise
from rtlstm.fpga.tools import find_yosys
from rtlstm.gen.builds.command_options import ImplementOptions
from rtlstm.gen.builds.report import BuildReport
from rtlstm.gen.builds.report_html import update_report
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.family import GENERIC
from rtlstm.spec.manifest import Manifest, read_verilog
from rtlstm.spec.progress import Progress


def implement(folder: Path, asked: ImplementOptions, progress: Progress | None = None) -> Implementation:
    """Synthesise, place and route a build, and write the figures into its report.

    ``asked`` has the clock that place and route aims at, and that the design must reach; by default a clock
    that is usual for the device is aimed at and none is demanded. The seeds are 1, 2, ... ``progress`` is
    called as ``progress(what, done, total)``, from several threads if seeds run at once. Raises BuildError if
    ``folder`` is not a build, or is damaged. Raises ConfigurationError if the design does not fit the device,
    by its estimate or the count of its hard blocks (before synthesis) or by its netlist. Raises ToolError if
    a tool is missing or fails; place and route, with all seeds.
    """
    manifest = Manifest.load(folder)
    report = BuildReport.load(folder)
    verilog = read_verilog(folder, manifest)
    chosen = find_device_alone(asked.device, asked.package, asked.speed_grade)
    device, multipliers = chosen.device, asked.multipliers
    expected = _check_request(manifest, chosen, asked)
    yosys = find_yosys()
    nextpnr = fpga_family(device.family).find_nextpnr() if device.routable else None
    work = Path(folder) / "impl" / folder_name(chosen.label, asked.cores)
    synthesis = synthesise(
        verilog,
        manifest.name,
        device,
        yosys,
        work,
        multipliers=multipliers,
        cores=asked.cores,
        progress=progress,
    )
    spatial = manifest.spatial is not None
    check_fit(manifest.name, synthesis.core, device, cores=asked.cores, spatial=spatial)
    # A design with an estimate has been compared with the limits already.
    check_chains(
        manifest.name,
        synthesis.folder / NETLIST,
        device,
        insist=asked.insist or expected is not None,
        cores=asked.cores,
        spatial=spatial,
    )
    target = asked.clock_mhz or chosen.target_mhz
    routed: Sequence[Routed] = ()
    failed: Mapping[int, str] = {}
    tools, options = {"yosys": yosys.version}, list[str]()
    if nextpnr is not None:
        tools[nextpnr.name] = nextpnr.version
        router, placer = choose_tools(chosen, spatial, synthesis.core.luts, asked.router, asked.placer)
        options = nextpnr_options(chosen, target, router, placer) + ["--tmg-ripup"] * asked.rip_up
        route = partial(
            place_and_route,
            synthesis,
            manifest.name,
            chosen,
            nextpnr,
            work,
            seeds=asked.seeds,
            target_mhz=target,
            router=router,
            placer=placer,
            rip_up=asked.rip_up,
            minutes=asked.time_limit,
            spatial=spatial,
            progress=progress,
        )
        routed, failed = route_seeds(route, range(1, asked.seeds + 1), asked.jobs or default_jobs())
    found = Implementation.create(
        chosen=chosen,
        cycles=manifest.cycles,
        core=synthesis.core,
        cores=asked.cores,
        seeds=routed,
        failed_seeds=failed,
        requested_mhz=asked.clock_mhz,
        insist=asked.insist,
        estimate=expected,
        multiplier_blocks=multipliers and device.multipliers > 0,
        tools=tools,
        harness=synthesis.harness,
        unpacked_ffs=unpacked_registers(manifest, device, multipliers),
        synthesis_seconds=synthesis.seconds,
        target_mhz=target if routed else None,
        options=options,
    )
    update_report(folder, manifest, report, lambda now: now.with_implementation(found))
    return found


def _check_request(manifest: Manifest, chosen: Chosen, asked: ImplementOptions) -> Estimate | None:
    """Refuse what cannot be built, before any tool runs; return the estimate, if the family has any."""
    device, family = chosen.device, manifest.parameters.family
    if not fpga_family(device.family).takes_builds_of(family):
        raise ConfigurationError(
            f"{device.name} needs a build of portable Verilog, or one for its family, but "
            f"{manifest.name} was generated for {family}; generate it with `family={device.family!r}`"
        )
    if asked.clock_mhz is not None and not device.routable:
        raise ConfigurationError(
            f"{device.name} can only be synthesised, because its place and route is not supported: leave out "
            "`clock_mhz`"
        )
    expected = estimate(manifest, chosen, asked.multipliers, cores=asked.cores)
    if expected is None:
        check_inventory(manifest, device, asked.multipliers, cores=asked.cores)
    else:
        # A device that is only synthesised can be full: limits are those of place and route.
        check_estimate(manifest.name, expected, device, asked.insist or not device.routable)
    return expected


def check_family(manifest: Manifest, device: FpgaDevice, board: str) -> None:
    """Refuse a build of another family than a board's device.

    Raises ConfigurationError if the build is neither portable Verilog nor for the device's family.
    """
    family = manifest.parameters.family
    if family not in (device.family, GENERIC):
        # Of what surrounds a core on a Zynq's board, there is no estimate.
        estimates = fpga_family(device.family).estimates
        fits = estimates is not None and estimates.top_luts is not None
        other = f", or with `fit={board!r}`, which chooses its sizes, too" if fits else ""
        raise ConfigurationError(
            f"{board} has the device {device.name}, but {manifest.name} was generated for {family}; "
            f"generate it with `family={device.family!r}`{other}"
        )
