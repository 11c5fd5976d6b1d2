"""Components declare their ports to the type checker as they are: all, no others, and of their types."""

from collections import defaultdict
from inspect import get_annotations
from itertools import chain
from typing import get_type_hints

import pytest
from amaranth.hdl import Fragment
from amaranth.lib import wiring
from support.bus_builds import CAPACITIES, SETTINGS, SIZES, quantised_network, small_network
from support.cell_networks import CELL_NETWORKS
from support.loadable_builds import NARROW, make_device
from support.random_builds import TINY
from support.random_sequences import random_sequence_case

from rtlstm import Manifest, Network, Norm, Parameters
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.hdl.buses import wrappers
from rtlstm.hdl.core.core import part_modules
from rtlstm.hdl.link.serial_link import LinkedCore
from rtlstm.hdl.sequences.part_steps import make_core
from rtlstm.spec.buses import BusName
from rtlstm.spec.numerics import QuantizedNetwork


def manifest(network: QuantizedNetwork, parameters: Parameters) -> Manifest:
    return Manifest.of("dut", network, parameters)


def components() -> list[wiring.Component]:
    """Tops of builds that have every component between them."""
    plain, cells = quantised_network(), quantise(CELL_NETWORKS["gru"], NARROW)
    direct = quantise(small_network(), QuantizationSettings(data_bits=8, tables="direct"))
    *lstms, dense = small_network().layers
    linear = Network(layers=(*lstms, dense.replace(activation="identity")))
    wide = quantise(linear, QuantizationSettings(weight_bits=8, data_bits=8, gate_bits=8))
    loadable = make_device(small_network(), Parameters(**SIZES), SETTINGS, "dut", **CAPACITIES).manifest
    several = make_device(small_network(), Parameters(**SIZES), SETTINGS, "dut", networks=2).manifest
    normed = Network(layers=(*lstms, Norm(values=4)))
    norms = make_device(normed, Parameters(**SIZES), SETTINGS, "dut", **CAPACITIES).manifest
    summing = manifest(plain, Parameters(lane_sums=4, **SIZES))
    buses: tuple[BusName, ...] = ("axi", "axilite", "wishbone")
    wrapped = [wrappers.wrapper(manifest(plain, Parameters(bus=bus, **SIZES))) for bus in buses]
    wrapped += [wrappers.wrapper(loadable.replace(parameters=loadable.parameters.replace(bus="axi")))]
    cores = [
        manifest(cells, Parameters(lanes=8, macs=4)),
        manifest(quantise(CELL_NETWORKS["norm"], NARROW), Parameters(lanes=8, macs=4)),
        # Two gates read a table on the two ports of a memory.
        manifest(direct, Parameters.for_family("ecp5", lanes=8, macs=4, tables="direct")),
        # Sums of outputs that are wider than pre-activations.
        manifest(wide, Parameters(**SIZES)),
        random_sequence_case(1, TINY).manifest,
    ]
    return [
        *map(make_core, cores),
        *chain.from_iterable(part_modules(core).values() for core in cores),
        LinkedCore(loadable, 8),
        make_core(several),
        make_core(norms),
        *part_modules(manifest(plain, Parameters(lut_lanes=2, **SIZES))).values(),
        *part_modules(summing).values(),
        make_core(summing),
        make_core(manifest(plain, Parameters(wave_front=True, **SIZES | {"streams": 1}))),
        *(top for top in wrapped if top is not None),
    ]


@pytest.fixture(scope="module")
def made() -> dict[type, list[wiring.Component]]:
    """Components by class, those inside others too."""
    found: dict[type, list[wiring.Component]] = defaultdict(list)
    usual = wiring.Component.__init__

    def record(self: wiring.Component, *arguments: object, **options: object) -> None:
        usual(self, *arguments, **options)
        found[type(self)].append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring.Component, "__init__", record)
        for top in components():
            Fragment.get(top, None)
    return {kind: parts for kind, parts in found.items() if kind.__module__.startswith("rtlstm.")}


def declared(kind: type) -> dict[str, object]:
    """What a component's body and those of its bases tell the type checker, but for private names."""
    return {name: hint for name, hint in get_type_hints(kind).items() if not name.startswith("_")}


def test_every_port_is_declared(made: dict[type, list[wiring.Component]]) -> None:
    assert len(made) > 30
    for kind, parts in made.items():
        for part in parts:
            # Ports of a wrapper are those of its parts, with a prefix.
            if not issubclass(kind, wrappers.Wrapper):
                assert set(part.signature.members) <= declared(kind).keys(), kind


def test_nothing_else_is_declared(made: dict[type, list[wiring.Component]]) -> None:
    for base in {base for kind in made for base in kind.__mro__ if base.__module__.startswith("rtlstm.")}:
        kinds = [kind for kind in made if issubclass(kind, base)]
        ports = {name for kind in kinds for part in made[kind] for name in part.signature.members}
        names = {name for name in get_annotations(base) if not name.startswith("_")}
        # What has a value in the class is no port.
        assert {name for name in names if not hasattr(kinds[0], name)} <= ports, base


def test_declared_types_are_those_of_the_ports(made: dict[type, list[wiring.Component]]) -> None:
    for kind, parts in made.items():
        for name, hint in declared(kind).items():
            for part in parts:
                if name not in part.signature.members:
                    continue
                port = getattr(part, name)
                whole = wiring.flipped(port) if isinstance(port, wiring.FlippedInterface) else port
                assert getattr(hint, "_is_protocol", False) or isinstance(whole, hint), (kind, name)
