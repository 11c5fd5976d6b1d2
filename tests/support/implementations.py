"""Results of simulators and of FPGA tools that none of them made."""

import hashlib
from pathlib import Path
from typing import Any

from rtlstm import Comparison, Implementation, Manifest
from rtlstm.boards.bitstream import Bitstream, Use
from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import Estimate
from rtlstm.fpga.families.base import fpga_family
from rtlstm.fpga.place_route import Routed
from rtlstm.fpga.resources import count_cells
from rtlstm.fpga.worst_path import WorstPath

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


def comparison(**changes: Any) -> Comparison:
    """Return one without a difference."""
    fields: dict[str, Any] = {"simulator": "icarus", "sequences": 2, "steps": 1010, "seconds": 0.25}
    fields |= {"output_words": 2020, "output_different": 0, "state_words": 16, "state_different": 0}
    fields |= {"cycles_predicted": 34567, "cycles_measured": 34567, "cycles_different": 0}
    return Comparison(**fields | {"first_difference": ""} | changes)


def bitstream(**changes: Any) -> Bitstream:
    """Return one of the ULX3S, whose clock is missed."""
    fields: dict[str, Any] = {
        "board": "ulx3s-12f",
        "build_hash": "0",
        "file": "top.bit",
        "sha256": hashlib.sha256(b"bits").hexdigest(),
        "clock_mhz": 100.0,
        "requested_mhz": 100.0,
        "fmax_mhz": 91.0,
        "step_latency_us": 0.5,
        "met": False,
        "port": {"baud": 3_000_000, "baud_error": 0.0},
        "seed": 1,
        "seeds_mhz": {1: 91.0},
        "uses": (Use(name="TRELLIS_COMB", used=1234, available=24000),),
        "worst_path": "from a to b",
        "tools": {},
        "synthesis_seconds": 1.0,
        "route_seconds": 1.0,
        "stored": False,
    }
    return Bitstream(**fields | changes)


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
