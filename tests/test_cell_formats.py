"""Layers whose c has formats of their own: every model and every kind of hardware gives the same bits."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import INPUTS, UNITS
from support.loadable_builds import NARROW, Build, check, make_device, stacked
from support.quick import quick
from support.random_builds import make_case
from support.small_builds import normal_lstm
from support.step_checks import check_device

from rtlstm import Accelerator, CellBuilder, ConfigurationError, Manifest, Parameters, SaturationWarning
from rtlstm.gen.builds.hardware import device_settings
from rtlstm.gen.builds.report import format_reports
from rtlstm.gen.quantise.quantiser import QuantizationSettings, choose_formats, quantise, quantise_with
from rtlstm.gen.quantise.ranges import FORMULAS, Candidate
from rtlstm.gen.quantise.target import TargetHardware
from rtlstm.hdl.emit.header import build_options
from rtlstm.hdl.emit.verilog import core_to_verilog
from rtlstm.host.state import StateLayout
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.activations.functions import SIGMOID, TANH
from rtlstm.spec.cells.unit import FusedUnit, GraphUnit
from rtlstm.spec.fixed import Format
from rtlstm.spec.network import Custom, Dense, Layer, Lstm, Network
from rtlstm.spec.numerics import QuantizedNetwork, stated_cell_range

SETTINGS = QuantizationSettings(weight_bits=8, data_bits=8, gate_bits=10, cell_bits=14)


def lstm(seed: int, inputs: int, **options: object) -> Lstm:
    return normal_lstm(np.random.default_rng(seed), inputs, UNITS, name=f"lstm{seed}", **options)


def custom(seed: int, inputs: int) -> Custom:
    """A cell whose result and gate read what it keeps."""
    rng, cell = np.random.default_rng(seed), CellBuilder()
    share = cell.apply(SIGMOID, cell.gate(0) + cell.state())
    kept = cell.keep(share * cell.state() + (1.0 - share) * (cell.gate(1) + cell.gate(2)))
    built = cell.build("mine", cell.apply(SIGMOID, cell.gate(3)) * cell.apply(TANH, kept * 0.5))
    w_ih, w_hh = rng.normal(size=(4 * UNITS, inputs)), rng.normal(size=(4 * UNITS, UNITS))
    return Custom(cell=built, w_ih=w_ih, w_hh=w_hh, bias=rng.normal(size=4 * UNITS))


def peephole(seed: int, inputs: int) -> Lstm:
    # Constants of one format: others would be those of another graph.
    return lstm(seed, inputs, peephole=np.linspace(-0.9, 0.8, 3 * UNITS))


def clipped(seed: int, inputs: int) -> Lstm:
    return lstm(seed, inputs, cell_clip=1.5, coupled=True)


def network(*kinds: object) -> Network:
    layers: list[Layer] = [kind(seed, UNITS if seed else INPUTS) for seed, kind in enumerate(kinds)]
    return Network(layers=(*layers, Dense(weight=np.eye(2, UNITS), bias=np.zeros(2))))


def quantised(
    given: Network,
    ranges: tuple[float, ...],
    settings: QuantizationSettings = SETTINGS,
    candidate: Candidate = FORMULAS,
) -> QuantizedNetwork:
    choices = choose_formats(given, settings, None)
    more = (1.0,) * (len(choices.cell_ranges) - len(ranges))
    choices = replace(choices, cell_ranges=(*ranges, *more), candidate=candidate)
    return quantise_with(given, settings, choices)


NETWORKS = {
    "two": (network(lstm, lstm), (1.0, 16.0)),
    "coarse first": (network(lstm, lstm, lstm), (8.0, 1.0, 2.0)),
    "peepholes": (network(peephole, peephole), (16.0, 2.0)),
    "clipped": (network(clipped, clipped), (8.0, 2.0)),
    "own cells": (network(custom, custom, custom), (4.0, 32.0, 8.0)),
    "own cells and peepholes": (network(custom, peephole, custom, peephole), (4.0, 2.0, 8.0, 16.0)),
}


def test_each_layer_has_the_format_of_its_range() -> None:
    found = quantised(*NETWORKS["coarse first"])
    forms = [shape.state for shape in found.shapes]
    assert forms == [Format(bits=14, fraction=fraction) for fraction in (10, 13, 12)] + [None]
    assert (found.numerics.cell, found.numerics.cell_shifts) == (forms[1], (0, 1, 3))


def test_a_network_has_at_most_four_formats_of_c() -> None:
    """Of five ranges, the one that is nearest to the next wider one takes that."""
    wanted = (1.0, 16.0, 64.0, 128.0, 1024.0)
    found = quantised(network(*[lstm] * 5), wanted)
    limits = [2.0 ** (shape.state.bits - 1 - shape.state.fraction) for shape in found.shapes if shape.state]
    assert limits == [1.0, 16.0, 128.0, 128.0, 1024.0]


@pytest.mark.parametrize(
    ("ranges", "bits"),
    [((1.0, 16.0), 16), ((17.0, 2.0), 17), ((64.0, 64.0), 18), ((1.0, 4096.0), 24), ((2.0**14, 1.0), 24)],
)
def test_by_default_the_widest_range_sets_the_bits(ranges: tuple[float, float], bits: int) -> None:
    settings = QuantizationSettings(data_bits=8, weight_bits=8)
    found = quantised(network(lstm, lstm), ranges, settings)
    more = quantised(network(lstm, lstm), ranges, settings, Candidate(more_cell_bits=2))
    assert more.numerics.cell.bits == bits + 2
    states = [shape.state for shape in found.shapes if shape.state]
    assert [form.bits for form in states] == [bits, bits] == [found.numerics.cell.bits] * 2
    assert all(form.limit + form.step >= wanted for form, wanted in zip(states, ranges, strict=True))


def test_the_range_of_each_lstm_may_be_stated() -> None:
    given, ranges = NETWORKS["coarse first"]
    stated = quantise(given, SETTINGS.replace(cell_range="8,1,2"))
    assert stated.shapes == quantised(given, ranges).shapes
    assert stated_cell_range(stated.shapes, stated.numerics) == "8,1,2"
    assert quantise(given, SETTINGS.replace(cell_range=ranges)).numerics == stated.numerics
    with pytest.raises(ConfigurationError, match=r"one for each LSTM \(lstm0, lstm1, lstm2\), not 2 numbers"):
        quantise(given, SETTINGS.replace(cell_range="8,1"))


def test_a_loadable_device_with_several_formats_gives_layers_those_that_hold_their_c() -> None:
    device = quantised(*NETWORKS["two"]).numerics
    hardware = TargetHardware(device=device)
    for stated, limits in (("16,1", [16.0, 1.0]), ("2,0.5", [16.0, 1.0]), ("32,32", [16.0, 16.0])):
        found = quantise(network(lstm, lstm), SETTINGS.replace(cell_range=stated), hardware=hardware)
        assert found.numerics.hardware == device.hardware
        assert [shape.state.limit + shape.state.step for shape in found.shapes if shape.state] == limits


def test_messages_name_the_format_of_each_layer() -> None:
    found = quantised(*NETWORKS["two"])
    manifest = Manifest.of("two", found, Parameters(lanes=4, macs=2))
    assert "--cell-range 1,16" in build_options(manifest)
    uses = [each.use for each in format_reports(manifest) if each.use.startswith("cell state c")]
    assert uses == ["cell state c of lstm0", "cell state c of lstm1"]
    layout = StateLayout(manifest)
    assert layout.cell_formats == tuple(shape.state for shape in found.shapes[:2])
    state = [np.zeros((1, UNITS))] * 2, [np.full((1, UNITS), 0.5), np.full((1, UNITS), 40.0)]
    _, c, saturated = layout.parse(state, 1)
    assert [values[0, 0] for values in c] == [2**12, 2**13 - 1]
    with pytest.warns(SaturationWarning, match="5 of 10 values of c_0.*`cell_range=64`"):
        layout.warn_saturations(("h_0", "c_0"), saturated, 1)
    with pytest.warns(SaturationWarning, match="5 of 10 values of c_n.*15.998.*`cell_range=32`"):
        layout.warn_at_limit("c_n", c)


def test_the_exact_sum_limits_how_fine_a_format_is() -> None:
    wide = QuantizationSettings(cell_bits=28, gate_bits=18)
    found = quantised(network(lstm, lstm), (1.0, 2048.0), wide)
    cells = [shape.state for shape in found.shapes if shape.state]
    assert [cell.fraction for cell in cells] == [23, 16]


@pytest.mark.parametrize("name", NETWORKS)
def test_no_cycle_and_no_pipeline_more(name: str) -> None:
    """The hardware of several formats is that of one, but for shifts."""
    given, ranges = NETWORKS[name]
    parameters = Parameters(lanes=4, macs=2)
    mine, single = (
        Manifest.of(name.replace(" ", "_"), found, parameters)
        for found in (quantised(given, ranges), quantised(given, (max(ranges),) * len(ranges)))
    )
    assert mine.cycles == single.cycles
    units = mine.numerics.unit, single.numerics.unit
    assert len(units[0].products) == len(units[1].products)
    assert [count for _, _, count in units[0].table_uses] == [count for _, _, count in units[1].table_uses]
    for unit, several in zip(units, (True, False), strict=True):
        if isinstance(unit, FusedUnit):
            assert (len(unit.cell_shifts) > 1) == several
        else:
            assert isinstance(unit, GraphUnit)
            assert any(len(pipeline.shifts) > 1 for pipeline in unit.pipelines) == several


def test_a_finer_format_of_a_small_c_is_nearer() -> None:
    """With one format, a layer with a large c makes that of a layer with a small c coarse."""
    first = lstm(0, INPUTS)
    small = first.replace(w_ih=first.w_ih * 0.05, w_hh=first.w_hh * 0.05, bias=first.bias * 0.2)
    given = Network(layers=(small, lstm(1, UNITS)))
    settings = QuantizationSettings(cell_bits=12)
    x = np.random.default_rng(3).uniform(-1, 1, (30, 4, INPUTS))
    wanted = run_float(given, x).c[0]
    errors = []
    for ranges in ((64.0, 64.0), (1.0, 64.0)):
        found = quantised(given, ranges, settings)
        c = Golden(found).run(found.numerics.quantise_input(x)).c[0]
        assert found.shapes[0].state is not None
        errors.append(float(np.abs(found.shapes[0].state.to_floats(c) - wanted).max()))
    assert errors[1] < errors[0] / 8


def test_a_range_that_takes_fraction_bits_below_zero_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs 0 or more fraction bits"):
        quantised(network(lstm, lstm), (1.0, 2.0**20))


@pytest.mark.rtl
@pytest.mark.parametrize("units", quick([1, 2], 1))
@pytest.mark.parametrize("bits", quick([14, 17], 14))
@pytest.mark.parametrize("name", quick(list(NETWORKS), "own cells and peepholes"))
def test_icarus_equals_golden(name: str, bits: int, units: int, tmp_path: Path) -> None:
    """c, and with more bits than a DSP block takes, the product f c is shifted."""
    # Icarus takes long to load large tables.
    settings = SETTINGS.replace(cell_bits=bits, gate_bits=8 if bits == 14 else 10)
    found = quantised(*NETWORKS[name], settings)
    parameters = Parameters(lanes=8, macs=2, gate_units=units, beat_out=units, streams=2)
    check_device(make_case(bits, found, parameters, steps=5), tmp_path, "icarus")


@pytest.mark.rtl
@pytest.mark.slow
def test_a_loadable_core_has_the_shift_of_each_operation_from_its_program(tmp_path: Path) -> None:
    settings = NARROW.replace(cell_range="8,1")
    parameters = Parameters(lanes=8, macs=2, gate_units=2, beat_out=2, streams=2)
    device = make_device(stacked(3, 5, 4, dense=((2, "tanh"),)), parameters, settings)
    assert device.manifest.numerics.cell_shifts == (0, 3)
    ranges = device_settings(device.manifest, None).replace(cell_range="8,1,8")
    hardware = TargetHardware(device=device.manifest.numerics)
    found = quantise(stacked(2, 3, 3, 3, seed=1), ranges, hardware=hardware)
    made = Manifest.of("device", found, device.manifest.parameters)
    assert stated_cell_range(found.shapes, found.numerics) == "8,1,8"
    folder = device.save(tmp_path / "device", core_to_verilog(device.manifest))
    with Accelerator.open(folder, "icarus", verify=False) as accelerator:
        for seed, build in enumerate((device, Build(found, made))):
            accelerator.load(build.save(tmp_path / f"build{seed}"), verify=False)
            check(accelerator, build, seed)
