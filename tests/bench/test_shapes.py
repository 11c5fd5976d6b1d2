"""The shapes, against the sizes that are published for them, and the anchors."""

import numpy as np
import pytest
from support.paths import DOCS

from rtlstm.bench.hardware import predict_cycles
from rtlstm.bench.records import ANCHORS
from rtlstm.bench.shapes import SHAPES, find_shapes
from rtlstm.fpga.devices import devices, find_device
from rtlstm.fpga.estimate import estimate
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.inventory import gate_multipliers

BENCHMARKS = (DOCS / "benchmarks.md").read_text()
PUBLISHED = {
    # Multiplications of a step, of them on the input path; whether both count dense layers; weights.
    "traffic20": (1_680, 80, False, 1.8e3),
    "toptag": (2_080, 480, False, 3.6e3),
    "mnist32": (7_680, 3_584, False, 8.1e3),
    "vad128": (131_072, 65_536, False, 131e3),
    "quickdraw": (67_072, 1_536, False, 102e3),
    "stac_a": (160_100, 80_000, True, 161e3),
    "stac_a_4_bits": (160_100, 80_000, True, 161e3),
    "stac_a_4_bits_wide": (160_100, 80_000, True, 161e3),
    "stac_b": (1_000_200, 520_000, True, 1.00e6),
    "stac_c": (30.0e6, 14.0e6, True, 30.0e6),
    "vollo_ex3": (921_600, 393_216, True, 923e3),
    "lstm2x250": (1_000_000, 500_000, False, 1.00e6),
    "lstm4x177": (1_002_528, 501_264, False, 1.00e6),
    "gru512": (1_032_192, 589_824, False, 1.03e6),
    "dropbear": (5_475, 2_760, True, 5.7e3),
    "nam16": (1_104, 64, True, 1.17e3),
    "deepbench256": (524_288, 262_144, False, 525e3),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_the_published_ones(name: str) -> None:
    shape = SHAPES[name]
    macs, on_path, with_dense, weights = PUBLISHED[name]
    found = shape.recurrent_macs + (shape.dense_macs if with_dense else 0)
    assert found == pytest.approx(macs, rel=1e-3 if name == "stac_c" else 0)
    assert shape.input_path_macs == pytest.approx(on_path, rel=1e-3)
    assert shape.weight_count == pytest.approx(weights, rel=0.02)


def test_every_shape_has_the_pipeline_of_a_device_that_can_hold_it() -> None:
    """No cycles of the generic pipeline, which no device runs fast, beside other people's figures."""
    largest = devices()["lfe5u-85f"]
    room = largest.block_rams * 1024 * largest.block_ram_kibit
    for shape in SHAPES.values():
        family = "ecp5" if shape.weight_count * shape.bits < room else "ultrascale"
        assert shape.family == family, shape.name


def test_stac_a_has_two_gate_units() -> None:
    cycles = predict_cycles(SHAPES["stac_a"]).cycles
    assert cycles.step_latency_cycles == 525
    assert [layer.overhead_cycles for layer in cycles.layers[:2]] == [9, 3]


BUILDS = {
    # What is routed, with the overhead of each layer: no table tells that of a slow array alone.
    "40 x 4, 8 bits": ({}, 525, [9, 3, -12]),
    "40 x 10, 8 bits": ({"macs": 10, "lut_macs": 7, "beat": 10}, 261, [26, 20, 5]),
    "40 x 25, 4 bits": (
        {"macs": 25, "lut_macs": 17, "gate_units": 5, "beat": 5, "weight_bits": 4}
        | {"tables": "direct", "gate_bits": 9},
        132,
        [22, 16, 10],
    ),
}


@pytest.mark.parametrize("array", BUILDS)
def test_overhead_of_stac_a_is_told_for_the_builds_that_carry_its_times(array: str) -> None:
    changes, latency, overheads = BUILDS[array]
    cycles = predict_cycles(SHAPES["stac_a"].replace(**changes)).cycles
    assert cycles.step_latency_cycles == latency
    assert [layer.overhead_cycles for layer in cycles.layers] == overheads
    row = next(line for line in BENCHMARKS.splitlines() if line.startswith(f"| `stac_a`, {array}"))
    assert f"| {latency} |" in row and " + ".join(map(str, overheads)).replace("+ -", "- ") in row


@pytest.mark.parametrize(
    ("name", "cycles", "wide"), [("gru512", 6170, 85), ("lstm2x250", 4050, 104), ("lstm4x177", 4350, 170)]
)
def test_networks_of_vollo_in_an_array_as_wide_as_its_own(name: str, cycles: int, wide: int) -> None:
    shape = SHAPES[name]
    as_wide = shape.replace(lanes=768, macs=16, gate_units=16, beat=16)
    for each, expected in (shape, cycles), (as_wide, wide):
        assert predict_cycles(each).cycles.step_latency_cycles == expected
        assert f"{expected:,} |" in BENCHMARKS


@pytest.mark.parametrize(("name", "cycles", "shared"), [("", 358, 140), ("_wide", 182, 120)])
def test_narrow_weights_share_multipliers(name: str, cycles: int, shared: int) -> None:
    """Two products of 4 x 8 bits in a DSP block; the data are as wide as those of ``stac_a``."""
    manifest = predict_cycles(SHAPES[f"stac_a_4_bits{name}"])
    numerics, parameters = manifest.numerics, manifest.parameters
    assert (numerics.weight_bits, numerics.data_bits) == (4, 8)
    assert manifest.cycles.step_latency_cycles == cycles
    assert parameters.lanes * (parameters.macs - parameters.lut_macs) == 2 * shared
    gates = sum(each.count for each in gate_multipliers(numerics.unit)) + 5
    found = estimate(manifest, find_device("lfe5u-85f-8"))
    assert found is not None and found.fits
    assert found.multipliers == shared + gates * parameters.gate_units


def test_bits_of_weights_are_those_of_data_by_default() -> None:
    assert SHAPES["stac_a"].settings.weight_bits == SHAPES["stac_a"].settings.data_bits == 8
    narrow = SHAPES["stac_a"].replace(bits=12, weight_bits=4)
    assert (narrow.settings.weight_bits, narrow.settings.data_bits) == (4, 12)
    # A multiplier of LUTs is as deep as its narrower factor needs.
    assert (
        narrow.parameters.pipeline.multiplier
        < narrow.replace(weight_bits=None).parameters.pipeline.multiplier
    )


def test_all_shapes_are_there() -> None:
    more = {"traffic20_space", "toptag_space", "nam16_space", "dropbear_wave"}
    assert set(SHAPES) == set(PUBLISHED) | more
    for name in more:
        network, usual = SHAPES[name], SHAPES[name.partition("_")[0]]
        assert (network.units, network.dense, network.inputs) == (usual.units, usual.dense, usual.inputs)
    assert [shape.name for shape in SHAPES.values() if shape.without_rtl] == ["stac_c"]


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "stac_c"])
def test_network_has_the_sizes_that_the_shape_says(name: str) -> None:
    shape = SHAPES[name]
    network = shape.network()
    assert network.weight_count == shape.weight_count
    assert (network.inputs, network.outputs) == (shape.inputs, shape.outputs)


def test_weights_are_the_same_every_time_and_within_their_bound() -> None:
    shape = SHAPES["mnist32"]
    first, second = shape.network(), shape.network()
    assert first.model_dump_json() == second.model_dump_json()
    bound = 1 / np.sqrt(32)
    w_hh = first.layers[0].w_hh
    assert np.abs(w_hh).max() <= bound
    assert np.std(w_hh) == pytest.approx(bound / np.sqrt(3), rel=0.02)


def test_shapes_by_name() -> None:
    assert [shape.name for shape in find_shapes(["stac_a", "toptag", "stac_a"])] == ["stac_a", "toptag"]
    assert find_shapes(None) == list(SHAPES.values())
    with pytest.raises(
        ConfigurationError, match="a benchmark network must be one of traffic20, .*, not 'mnist'"
    ):
        find_shapes(["mnist"])


def test_anchors_are_sane() -> None:
    for anchor in ANCHORS:
        assert anchor.who and anchor.source and f"{anchor.highest_us:g}" in anchor.figure
        assert (anchor.lowest_us or 0) <= anchor.highest_us
        assert anchor.clock_mhz is None or 10 <= anchor.clock_mhz <= 5000
        assert (anchor.shape is None) == bool(anchor.network)
        assert anchor.shape is None or anchor.shape in SHAPES
        if anchor.timed == "end to end":
            # Half a microsecond is what a host's bus takes alone.
            assert anchor.highest_us > 0.5
    assert {"stac_a", "stac_b", "stac_c", "vad128"} <= {anchor.shape for anchor in ANCHORS}


def test_anchors_agree_with_the_cycles_they_come_from() -> None:
    times = {(anchor.shape, anchor.who.split(",")[0]): anchor.highest_us for anchor in ANCHORS}
    assert times["gru512", "VOLLO SDK 29"] == pytest.approx(222 / 320, abs=1e-3)
    assert times["mnist32", "Que"] == pytest.approx(328 / 200)
    assert times["vad128", "VOLLO SDK 29"] == pytest.approx(97 / 320, abs=1e-3)
    assert times["deepbench256", "Brainwave"] == pytest.approx(425 / 150, abs=0.05)
    assert times["deepbench256", "Plasticine"] == pytest.approx(41.9 / 150, abs=1e-3)
