"""Netlists hold the memories and multipliers that the inventory lists: these and no others."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from itertools import chain, product

import pytest
from amaranth.back.rtlil import convert
from amaranth.hdl import Value
from support.bus_builds import CAPACITIES, SETTINGS, SIZES, small_network
from support.cell_networks import CELL_NETWORKS
from support.loadable_builds import NARROW, make_device, stacked
from support.quick import quick
from support.random_builds import TINY, random_case
from support.random_sequences import random_sequence_case

from rtlstm import Manifest, Network, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.buses.wrappers import wrapper
from rtlstm.hdl.component import Component
from rtlstm.hdl.core.core import part_modules
from rtlstm.hdl.link.serial_link import SerialLink
from rtlstm.hdl.sequences.part_steps import make_core
from rtlstm.spec.inventory import (
    MemorySpec,
    MultiplierSpec,
    link_limits,
    link_memories,
    memories,
    multipliers,
    wrapper_memories,
)

SETS: dict[str, QuantizationSettings] = {
    "wide": QuantizationSettings(weight_bits=12, data_bits=14),
    "paired": QuantizationSettings(weight_bits=4, data_bits=8, gate_bits=8, cell_bits=12),
    "direct": QuantizationSettings(weight_bits=6, data_bits=8, gate_bits=8, cell_bits=12, tables="direct"),
}
OPTIONS: dict[str, tuple[str, str, dict[str, object]]] = {
    "generic": ("generic", "wide", {"lanes": 8, "macs": 5}),
    "shared blocks": ("ecp5", "paired", {"lanes": 16, "macs": 4, "gate_units": 2, "beat_out": 2}),
    "logic slopes": (
        "ice40",
        "wide",
        {"weight_memory": "large", "slope_multipliers": "lut", "macs": 8, "lut_macs": 7},
    ),
    "chains of two lanes": ("ultrascale", "paired", {"lanes": 8, "macs": 5}),
    "chains of one lane": ("ultrascale", "wide", {"lanes": 8, "macs": 4}),
    "chains beside LUTs": ("xilinx", "wide", {"lanes": 8, "macs": 5, "lut_macs": 1, "lut_lanes": 3}),
    "chains of two kinds of pairs": (
        "ultrascale",
        "paired",
        {"lanes": 8, "macs": 5, "lut_macs": 1, "lut_lanes": 2},
    ),
    "some in LUTs": ("xilinx", "wide", {"lanes": 8, "macs": 6, "lut_macs": 1, "streams": 3}),
    "no DSP blocks": ("gowin", "paired", {"lanes": 8, "macs": 4, "lut_macs": 4}),
    "two kinds of lanes": (
        "ecp5",
        "wide",
        {"lanes": 16, "macs": 4, "gate_units": 2, "beat_out": 2, "lut_lanes": 5},
    ),
    "two kinds of pairs": ("ecp5", "paired", {"lanes": 8, "macs": 4, "lut_macs": 3, "lut_lanes": 2}),
    "two kinds of neighbours": ("ice40", "paired", {"lanes": 8, "macs": 4, "lut_macs": 1, "lut_lanes": 7}),
    "direct": ("ecp5", "direct", {"tables": "direct", "lanes": 8, "macs": 4, "beat_in": 2}),
    "constant tables": ("ecp5", "wide", {"lanes": 8, "macs": 4, "table_memory": "rom"}),
}


def plain(name: str) -> Manifest:
    family, settings, options = OPTIONS[name]
    made = quantise(small_network(), SETS[settings])
    return Manifest.of("dut", made, Parameters.for_family(family, **options))


def loadable(network: Network) -> Manifest:
    return make_device(network, Parameters.for_family("ecp5", lanes=8, macs=4), NARROW, "dut").manifest


@dataclass(frozen=True)
class Instance:
    """A memory or multiplier in a design."""

    place: tuple[str, ...]
    """Names from the top down to it, numbers left out of those of units and lanes."""
    module: str
    parameters: Mapping[str, int | str]


def instances(text: str, top: str) -> Iterator[Instance]:
    """Yield all that primitives and Amaranth's memories make in a design, in RTLIL."""
    modules: dict[str, list[tuple[str, str, dict[str, int | str]]]] = defaultdict(list)
    for name, body in re.findall(r"^module \\(\S+)\n(.*?)^end$", text, re.MULTILINE | re.DOTALL):
        cells = modules[name]
        for kind, cell, inside in re.findall(
            r"^  cell \\(\S+) \\(\S+)\n(.*?)^  end$", body, re.MULTILINE | re.DOTALL
        ):
            found = re.findall(r'^    parameter \\(\w+) (?:"(\w+)"|(\d+))$', inside, re.MULTILINE)
            cells.append((kind, cell, {key: word or int(number) for key, word, number in found}))
        for width, size, cell in re.findall(r"^  memory width (\d+) size (\d+) \\(\S+)$", body, re.MULTILINE):
            cells.append(("memory", cell, {"WIDTH": int(width), "DEPTH": int(size)}))

    def walk(module: str, place: tuple[str, ...]) -> Iterator[Instance]:
        for kind, cell, parameters in modules[module]:
            here = (*place, re.sub(r"(?<=lane|unit|tion|bank)\d+$", "", cell))
            if kind == "dut_lut_lane":
                here = (*place, "LUT lane")
            if kind in modules:
                yield from walk(kind, here)
            else:
                yield Instance(here, kind, parameters)

    yield from walk(top, ())


def rtlil(components: Mapping[str, Component]) -> str:
    designs = []
    for name, component in components.items():
        ports = [Value.cast(value) for *_, value in component.signature.flatten(component)]
        designs.append(convert(component, name=name, ports=ports, emit_src=False))
    return "\n".join(designs)


MEMORIES = {
    ("lane", "bank"): "weights",
    ("LUT lane", "bank"): "weights",
    ("vectors",): "vectors",
    ("input_buffer", "memory"): "input buffer",
    ("begun",): "input times",
    ("sequences", "memory"): "sequence memory",
    ("sequences", "suppress"): "suppressed outputs",
    ("sequences", "upper"): "upper outputs",
    ("preactivation", "shift_memory"): "row shifts",
    ("preactivation", "partial_memory"): "partial sums",
    ("gate_unit", "cells"): "cell states",
    ("fetch", "program"): "program, issued",
    ("drain", "program"): "program, drained",
    ("queue", "storage"): "output queue",
}
"""What stands where, by the last names on the way there."""
GATES = {"input_gate": 0, "forget_gate": 0, "candidate_gate": 1, "output_gate": 0, "cell_tanh": 2}
"""The table of each part of a gate unit."""


def table_of(manifest: Manifest, unit: str) -> str:
    """Name the activation table of a part of a gate unit or cell unit."""
    uses = [name for name, _, _ in manifest.numerics.unit.table_uses]
    if match := re.fullmatch(r"cell(\d+)_table(\d+)", unit):
        cell, node = map(int, match.groups())
        index = manifest.numerics.cells[cell].nodes[node].index
    else:
        index = GATES[unit]
    return uses[index] if uses.count(uses[index]) == 1 else f"{uses[index]} {index}"


def memory_name(manifest: Manifest, place: tuple[str, ...]) -> str:
    if place[-1] == "table":
        return f"{table_of(manifest, place[-2])} tables"
    return MEMORIES.get(place[-2:]) or MEMORIES[place[-1:]]


def memory_specs(manifest: Manifest, text: str) -> dict[str, MemorySpec]:
    """What a design holds, as the inventory has it."""
    counts: Counter[MemorySpec] = Counter()
    pairs: Counter[str] = Counter()
    for found in instances(text, "dut"):
        sizes = found.parameters
        if found.module == "memory":
            name, queue = memory_name(manifest, found.place), (sizes["WIDTH"], sizes["DEPTH"])
            counts[MemorySpec(name, 1, *queue, asynchronous=True, inferred=True)] += 1
        elif found.module == "rtlstm_memory":
            name = memory_name(manifest, found.place)
            keys = ("WIDTH", "DEPTH", "GRANULES", "OUTREG", "STYLE")
            width, depth, granules, register, style = (sizes[key] for key in keys)
            assert sizes["ABITS"] == max(1, (depth - 1).bit_length())
            counts[MemorySpec(name, 1, width, depth, granules, register == 1, style)] += 1
        elif found.module == "rtlstm_memory_pair":
            width, depth, register = (sizes[key] for key in ("WIDTH", "DEPTH", "OUTREG"))
            name = memory_name(manifest, found.place)
            spec = MemorySpec(name, 1, width, depth, output_register=register == 1, style="block")
            counts[spec] += 2
            pairs[spec.name] += 1
    assert len({spec.name for spec in counts}) == len(counts)
    return {spec.name: replace(spec, count=count, pairs=pairs[spec.name]) for spec, count in counts.items()}


def multiplier_name(manifest: Manifest, found: Instance) -> str:
    cell = found.place[-1].removesuffix("s").removesuffix("_multiplier")
    for lane, suffix in (("lane", ""), ("LUT lane", " of LUT lanes")):
        if lane in found.place:
            return f"products{'' if found.parameters.get('KIND', 'dsp') == 'dsp' else ' in LUTs'}{suffix}"
    if cell == "rise":
        return f"{table_of(manifest, found.place[-2])} slopes"
    return {"kept": "f c", "added": "i g", "hidden": "o tanh(c)"}.get(cell, cell.removesuffix("_product"))


def multiplier_counts(manifest: Manifest, text: str) -> Counter[tuple[object, ...]]:
    """How many products of each name and form a design has, alone or in modules of two."""
    counts: Counter[tuple[object, ...]] = Counter()
    for found in instances(text, "dut"):
        if found.module in ("rtlstm_multiplier", "rtlstm_multiplier_pair"):
            form = tuple(found.parameters[key] for key in ("A_BITS", "B_BITS", "STAGES", "KIND"))
            shared = found.parameters.get("SHARED", 0)
            in_two = 2 if found.module.endswith("pair") else 1
            counts[multiplier_name(manifest, found), *form, shared, in_two] += in_two
        elif found.module in ("rtlstm_product_sum", "rtlstm_product_sum_pair"):
            form = (*(found.parameters[key] for key in ("A_BITS", "B_BITS", "STAGES")), "dsp")
            lanes = 2 if found.module.endswith("pair") else 1
            counts[multiplier_name(manifest, found), *form, lanes - 1, "chain"] += 2 * lanes
    return counts


def listed_products(spec: MultiplierSpec) -> Iterator[tuple[tuple[object, ...], int]]:
    form = (spec.name, spec.a_bits, spec.b_bits, spec.stages, spec.kind)
    yield (*form, int(spec.shared), 2), 2 * spec.pairs
    in_chains = 2 * spec.sets * spec.sums
    yield (*form, int(spec.shared), "chain"), in_chains
    yield (*form, 0, 1), spec.count - 2 * spec.pairs - in_chains


def check(manifest: Manifest) -> None:
    text = rtlil({"dut": make_core(manifest)} | part_modules(manifest))
    assert memory_specs(manifest, text) == memories(manifest)
    listed = chain.from_iterable(map(listed_products, multipliers(manifest).values()))
    assert multiplier_counts(manifest, text) == Counter({key: count for key, count in listed if count})


@pytest.mark.parametrize("name", quick(OPTIONS, "chains beside LUTs", "two kinds of neighbours", "direct"))
def test_plain_cores(name: str) -> None:
    check(plain(name))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [200, 201, 202])
def test_drawn_cores(seed: int) -> None:
    check(replace_name(random_case(seed, TINY).manifest))


@pytest.mark.parametrize(
    "name",
    quick(["peephole", "gru", "other_functions", "rnns_without_bounds", "custom_c"], "other_functions"),
)
def test_cores_with_cells(name: str) -> None:
    # ECP5's cells have two stages to a product.
    family = "ecp5" if len(name) % 2 else "generic"
    parameters = Parameters.for_family(family, lanes=8, macs=4, gate_units=2, beat_out=2)
    check(Manifest.of("dut", quantise(CELL_NETWORKS[name], NARROW), parameters))


@pytest.mark.parametrize("name", quick(["peephole", "gru", "two_reset_before"], "peephole"))
def test_tables_on_two_ports_of_a_memory(name: str) -> None:
    settings = QuantizationSettings(weight_bits=6, data_bits=8, gate_bits=10, cell_bits=12, tables="direct")
    parameters = Parameters.for_family("ecp5", lanes=8, macs=4, gate_units=2, beat_out=2, tables="direct")
    manifest = Manifest.of("dut", quantise(CELL_NETWORKS[name], settings), parameters)
    assert any(memory.pairs for memory in memories(manifest).values())
    check(manifest)


@pytest.mark.parametrize("seed", quick([0, 1], 1))
def test_cores_of_whole_sequences(seed: int) -> None:
    """Outputs of seed 1 have more bits than its h."""
    check(replace_name(random_sequence_case(seed, TINY).manifest))


def replace_name(manifest: Manifest) -> Manifest:
    return manifest.replace(name="dut")


@pytest.mark.slow
def test_loadable_cores() -> None:
    check(loadable(stacked(3, 4, dense=((2, "tanh"),))))
    check(loadable(CELL_NETWORKS["gru"]))


WRAPPER_MEMORIES = {
    ("source", "queue", "storage"): "input FIFO",
    ("sink", "queue", "storage"): "output FIFO",
    ("sink", "frames", "storage"): "malformed packets",
}


@pytest.mark.parametrize(
    ("bus", "device"),
    quick(product(["axi", "axilite", "wishbone"], [False, True]), ("axi", True), ("wishbone", False)),
)
def test_wrappers(bus: str, device: bool) -> None:
    options = {**SIZES, "bus": bus, "streams": 3, "beat_in": 2}
    if device:
        made = make_device(small_network(), Parameters(**options), SETTINGS, "dut", **CAPACITIES).manifest
    else:
        made = Manifest.of("dut", quantise(small_network(), SETTINGS), Parameters(**options))
    design = wrapper(made)
    assert design is not None
    found = {
        WRAPPER_MEMORIES[each.place]: (each.parameters["WIDTH"], each.parameters["DEPTH"])
        for each in instances(rtlil({"top": design}), "top")
        if each.module in ("memory", "rtlstm_memory")
    }
    listed = wrapper_memories(made)
    assert found == {name: (spec.width, spec.depth) for name, spec in listed.items()}
    assert listed.keys() == ({"malformed packets"} if bus == "axi" else {"input FIFO", "output FIFO"})
    assert not wrapper_memories(made.replace(parameters=made.parameters.replace(bus="none")))


def test_links() -> None:
    device = make_device(small_network(), Parameters(**SIZES), SETTINGS, "dut", **CAPACITIES).manifest
    found = [
        found.parameters
        for found in instances(rtlil({"dut": SerialLink(device, 8)}), "dut")
        if found.module == "rtlstm_memory"
    ]
    keys = ("WIDTH", "DEPTH", "GRANULES", "OUTREG", "STYLE")
    listed = link_memories(link_limits(device)).values()
    assert Counter(tuple(sizes[key] for key in keys) for sizes in found) == Counter(
        astuple(spec)[2:7] for spec in listed
    )


@pytest.mark.parametrize(
    "stages", quick([{"adder_terms": 3}, {"tree_levels": 2}], {"tree_levels": 2}), ids=str
)
def test_other_trees_add_in_luts(stages: dict[str, int]) -> None:
    """A chain adds two products, and has a register behind them: other trees have none."""
    made = plain("chains of one lane")
    assert made.parameters.sums_in_dsp and multipliers(made)["products"].sums == 2
    parameters = made.parameters.replace(pipeline=made.parameters.pipeline.replace(**stages))
    shapes = quantise(small_network(), SETS["wide"]).shapes
    other = Manifest.create("dut", shapes, parameters, made.numerics)
    assert multipliers(other)["products"].sums == 0
    check(other)
