"""Results of ``implement`` that no tool made."""

from pathlib import Path
from typing import Any

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import Estimate
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.implementation import Implementation
from rtlstm.fpga.place_route import Routed
from rtlstm.fpga.resources import count_cells
from rtlstm.fpga.worst_path import WorstPath
from rtlstm.spec.manifest import Manifest

PATH = WorstPath(
    start="a",
    start_kind="register",
    end="b",
    end_kind="block RAM",
    delay_ns=4,
    logic_ns=1,
    routing_ns=3,
    cells=2,
    multipliers=0,
    through=(),
    text="from register a <...> to block RAM b",
)


def routed(seed: int, fmax: float, **more: Any) -> Routed:
    fields: dict[str, Any] = {"worst_path": PATH, "used": {}, "available": {}, "seconds": 1, "stored": False}
    return Routed(seed=seed, fmax_mhz=fmax, **fields | more)


ESTIMATE = Estimate(
    device="lfe5u-25f-6",
    luts=110,
    ffs=45,
    multipliers=8,
    block_rams=2,
    large_rams=0,
    cells=110,
    cell_share=0.5,
    fits=True,
    fmax_mhz=120,
    step_latency_us=1,
)


def implementation(
    folder: Path,
    *clocks: float,
    asked: float | None = None,
    rams: int = 1,
    estimate: Estimate | None = None,
    cores: int = 1,
    insist: bool = False,
) -> Implementation:
    counts = count_cells(
        {"LUT4": 100, "TRELLIS_FF": 50, "MULT18X18D": 8, "DP16KD": rams}, fpga_family("ecp5").cells
    )
    return Implementation.create(
        chosen=find_device("lfe5u-25f-6"),
        cycles=Manifest.load(folder).cycles,
        core=counts,
        cores=cores,
        insist=insist,
        seeds=[routed(number, clock) for number, clock in enumerate(clocks, 1)],
        requested_mhz=asked,
        multiplier_blocks=True,
        tools={"yosys": "1"},
        harness=counts,
        synthesis_seconds=1.0,
        target_mhz=160,
        options=("--25k",),
        estimate=estimate,
    )
