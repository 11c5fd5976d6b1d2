"""Chooses a spatial build for a device, ``--array spatial --fit``, and compares one with an array."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rtlstm.fpga.estimate import Demand, Estimate, estimate, worst_demand
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.fit import Fit, FitRequest
from rtlstm.fpga.resources import BLOCK_RAMS
from rtlstm.gen.builds.hardware import SPATIAL, ArrayRequest, in_space
from rtlstm.gen.quantise.plan import FormatChoices, QuantizationSettings
from rtlstm.gen.quantise.quantiser import quantise_with
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.manifest import Manifest
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.program.spatial import MOST_LOOP_REGISTERS

_MOST_BITS = 14_000
"""Bits of all weights up to which an array is compared with a spatial build: a second of adders to share."""
_QUICKEST = (1, 3)
"""Registers of loops that are tried for that: no other number had a shorter step."""
_THE_NETWORK = "the network: no other number of registers in the loop would be faster"


@dataclass(frozen=True)
class _Tried:
    """A spatial build for a device, with its estimate."""

    array: ArrayRequest
    manifest: Manifest
    estimate: Estimate
    worst: Demand

    @property
    def step_us(self) -> float:
        """Time from a step to the next one of any stream."""
        assert self.estimate.clock_mhz is not None  # families that are fitted have clocks
        return self.manifest.schedule.duration(1) / self.estimate.clock_mhz

    @property
    def key(self) -> tuple[float, float, int]:
        """Order of preference: the least is the best."""
        return self.step_us, self.estimate.step_latency_us or 0.0, self.estimate.cells


def fit_in_space(name: str, network: QuantizedNetwork, request: FitRequest) -> tuple[ArrayRequest, Fit]:
    """Choose the registers of the loop and the memory of tables with the most steps a second on a device.

    Raises ConfigurationError if there is no spatial build of such a network, and NothingFitsError if none
    fits.
    """
    tried = list(_tries(name, network, request, range(1, MOST_LOOP_REGISTERS + 1)))
    refused = [each for each in tried if each.worst.exceeds]
    best = min((each for each in tried if not each.worst.exceeds), key=lambda each: each.key, default=None)
    if best is None:
        nearest = min(refused, key=lambda each: each.worst.share).worst
        # Half the bits are half the adders, and an argument's bit is half its tables. Nothing saves more.
        helps = nearest.share < 2 or nearest.resource == BLOCK_RAMS
        fewer = "give fewer `weight_bits`, or `data_bits` and `gate_bits`, " if helps else ""
        text = (
            f"in space: the nearest takes {nearest.text}; {fewer}leave out `array='spatial'`, or "
            "choose a larger device"
        )
        raise request.misfit(name, text, nearest.share)
    faster = [each for each in refused if each.key < best.key]
    given = [each for each in ("loop_registers", "table_memory") if getattr(request, each) is not None]
    limit = f"the sizes that were given ({', '.join(given)})".replace("_", " ") if given else _THE_NETWORK
    if faster:
        limit = min(faster, key=lambda each: each.worst.share).worst.resource
    fit = Fit(device=request.target, limited_by=limit, tried=len(tried), estimate=best.estimate)
    return best.array, fit


def _tries(
    name: str, network: QuantizedNetwork, request: FitRequest, loops: Iterable[int]
) -> Iterator[_Tried]:
    """Yield spatial builds with these registers in the loop, or those that the request has."""
    given = request.model_fields_set & set(ArrayRequest.model_fields) - {"loop_registers", "table_memory"}
    taken = {each: getattr(request, each) for each in given}
    for registers in (request.loop_registers,) if request.loop_registers else loops:
        for memory in (request.table_memory,) if request.table_memory else (None, "rom"):
            array = ArrayRequest(
                **taken, family=request.chosen.device.family, loop_registers=registers, table_memory=memory
            )
            manifest = in_space(name, network, array)
            found = estimate(manifest, request.chosen, board=request.board)
            # The request was checked: its device has estimates of spatial builds.
            assert found is not None
            worst = worst_demand(found, request.chosen.device)
            yield _Tried(array, manifest, found, worst)
            # Tables of LUTs save nothing but block RAM.
            if not worst.exceeds or worst.resource != BLOCK_RAMS:
                break


def space_note(
    network: Network,
    settings: QuantizationSettings,
    choices: FormatChoices,
    request: FitRequest,
    chosen: Manifest,
    clock_mhz: float,
) -> tuple[str, ...]:
    """Return what to say of a spatial build that would be faster than an array that was chosen, if any is.

    Its tables are direct ones; the other formats are those of the array, which has ``clock_mhz``.
    """
    if (
        fpga_family(request.chosen.device.family).need_estimates().spatial_clocks is None
        or request.streams > 1
        or network.weight_count * settings.most_weight_bits > _MOST_BITS
    ):
        return ()
    asked = FitRequest(chosen=request.chosen, board=request.board, array="spatial", tables="direct")
    try:
        quantised = quantise_with(network, settings.replace(tables="direct"), choices, SPATIAL)
        tried = list(_tries(chosen.name, quantised, asked, _QUICKEST))
    except ConfigurationError:
        # There is no spatial build of such a network, or of such formats.
        return ()
    best = min((each for each in tried if not each.worst.exceeds), key=lambda each: each.key, default=None)
    now = chosen.cycles.step_interval_cycles / clock_mhz
    if best is None or best.step_us >= now:
        return ()
    return (
        f"in space, with direct tables, steps would follow each other in an estimated "
        f"{1000 * best.step_us:.3g} ns and not {1000 * now:.3g}, on {best.estimate.cell_share:g} % of the "
        "logic cells: `array='spatial'` builds that; its weights are constants, and none are loaded later",
    )
