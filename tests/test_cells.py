"""Cells of every kind: near the float model, and golden model and RTL equal on every bit and cycle."""

from pathlib import Path

import numpy as np
import pytest
from support.cell_networks import CELL_NETWORKS
from support.golden_runs import golden_outputs
from support.quick import quick
from support.random_builds import make_case, random_parameters, write_build
from support.step_checks import check_device

from rtlstm import Accelerator, ConfigurationError, Custom, Gru, Lstm, Manifest, Network, Rnn
from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.sim.golden import Golden
from rtlstm.sim.reference import run_float
from rtlstm.spec.activations.functions import SIGMOID, TANH, ActivationFunction
from rtlstm.spec.cells.description import CellBuilder, Term
from rtlstm.spec.cells.evaluate import Reals, evaluate
from rtlstm.spec.family import FAMILIES, Pipeline
from rtlstm.spec.parameters import Parameters, TableMemory

pytestmark = pytest.mark.rtl

NAMES = sorted(CELL_NETWORKS)
QUICK = ("coupled_and_clipped", "custom_stateless", "gru_reset_before", "grus_of_several", "product_of_two")
"""What the simulator computes in any case. The pipelines of families have peepholes and others."""


MAGNIFIES = ("lstms_with_some_norms",)
"""Norms of products with an h near zero, in which a sequence begins: they magnify its rounding."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("bits", "error"), [(16, 1e-3), (10, 0.05)])
def test_golden_is_near_the_float_model(name: str, bits: int, error: float) -> None:
    """With few bits in formats that were searched for, with many in those of the formulas."""
    network = CELL_NETWORKS[name]
    x = np.random.default_rng(1).uniform(-2, 2, (40, 3, network.inputs))
    quantised = quantise(network, QuantizationSettings(weight_bits=bits, data_bits=bits, quick=bits == 16), x)
    y, reference = golden_outputs(quantised, x), run_float(network, x).y
    error *= 1 + (name in MAGNIFIES)
    assert np.abs(y - reference).max() <= error * max(1.0, float(np.abs(reference).max()))


def check_close(network: Network, x: np.ndarray, data_bits: int = 16) -> None:
    """The golden model with wide formats is close to the float model."""
    wide = QuantizationSettings(weight_bits=18, data_bits=data_bits, gate_bits=18, cell_bits=24)
    quantised = quantise(network, wide, x)
    np.testing.assert_allclose(golden_outputs(quantised, x), run_float(network, x).y, atol=1e-3)


@pytest.mark.parametrize(("gate", "layers"), [("relu", 1), ("softplus", 1), ("affine", 2)])
def test_a_gru_of_two_layers_keeps_one_state(gate: str, layers: int) -> None:
    """With gates beyond 1, ``r * h`` has another range than h, in whose format the state is."""
    rng = np.random.default_rng(6)
    grus = [
        Gru(
            w_ih=rng.normal(size=(9, 3)) * 0.3,
            w_hh=rng.normal(size=(9, 3)) * 0.3,
            bias_ih=rng.normal(size=9) * 0.2,
            bias_hh=rng.normal(size=9) * 0.2,
            gate=ActivationFunction.of(gate),
            reset_after=False,
        )
        for _ in range(layers)
    ]
    x = rng.uniform(-1, 1, (12, 2, 3))
    check_close(Network(layers=tuple(grus)), x)


def test_rows_have_room_for_what_peepholes_take_off() -> None:
    """A row of 3, of which a peephole leaves 1: the format of the sum alone would limit the row."""
    peephole = np.repeat([-2.0, 0.0, -2.0], 2)
    bias = np.repeat([3.0, 0.0, 1.0, 3.0], 2)
    lstm = Lstm(w_ih=np.full((8, 1), 0.1), w_hh=np.zeros((8, 2)), bias=bias, peephole=peephole, clip=0.5)
    network, x = Network(layers=(lstm,)), np.random.default_rng(8).uniform(-1, 1, (20, 2, 1))
    check_close(network, x)


def test_sums_that_functions_read_have_room() -> None:
    """A cell whose tanh reads the sum of three gates, times four."""
    cell = CellBuilder()
    total = (cell.gate(0) + cell.gate(1) + cell.gate(2)) * 4.0
    built = cell.build("sums", cell.apply(ActivationFunction.of("scaled_tanh", 1.0, 0.25), total))
    rows = np.full((3, 1), 0.2)
    layer = Custom(cell=built, w_ih=rows, w_hh=rows, bias=np.zeros(3))
    check_close(Network(layers=(layer,)), np.random.default_rng(9).uniform(-1, 1, (20, 2, 1)))


@pytest.mark.parametrize("function", ["elu", "gelu", "softplus", "scaled_tanh"])
def test_tables_without_bounds_take_the_widest_formats(function: str) -> None:
    rng = np.random.default_rng(7)
    layer = Rnn(
        w_ih=rng.normal(size=(4, 3)),
        w_hh=rng.normal(size=(4, 4)) * 0.2,
        bias=rng.normal(size=4),
        activation=ActivationFunction.of(function),
    )
    check_close(Network(layers=(layer,)), rng.uniform(-1, 1, (9, 2, 3)), data_bits=18)


@pytest.mark.parametrize(
    ("name", "alpha", "beta"),
    quick(
        [
            *(
                ("scaled_tanh", -1.5, 0.5),
                ("scaled_tanh", 1.5, -0.5),
                ("elu", -0.6, None),
                ("elu", 0.6, None),
            ),
            *((name, None, None) for name in ("gelu", "gelu_tanh", "hard_swish", "mish", "selu", "silu")),
        ],
        ("scaled_tanh", -1.5, 0.5),
        ("gelu", None, None),
    ),
)
@pytest.mark.parametrize("table_memory", quick(["ram", "rom"], "ram"))
def test_sign_of_a_function_on_rtl(
    name: str, alpha: float, beta: float | None, table_memory: TableMemory, tmp_path: Path
) -> None:
    """Every input code, negative ones too, gives what the float function gives."""
    function = ActivationFunction.of(name, alpha, beta)
    one, zero = np.ones((1, 1)), np.zeros((1, 1))
    rnn = Rnn(w_ih=one, w_hh=zero, bias=np.zeros(1), activation=function)
    settings = QuantizationSettings(weight_bits=6, data_bits=6, gate_bits=8, input_range=2.0)
    network = quantise(Network(layers=(rnn,)), settings)
    manifest = Manifest.of("signs", network, Parameters(lanes=4, macs=1, table_memory=table_memory))
    write_build(tmp_path, network, manifest)
    codes = np.arange(network.numerics.input.lowest, network.numerics.input.maximum + 1)[:, None]
    form = network.shapes[0].output
    exact = np.ldexp(function(network.numerics.input.to_floats(codes)), form.fraction)
    for backend in ("golden", "icarus"):
        with Accelerator.open(tmp_path, backend=backend, verify=False) as accelerator:
            y = accelerator.device.exchange(np.zeros(len(codes), dtype=np.int64), codes)
        # A unit of the table, half of one for rounding to the output's bits.
        assert np.abs(y - np.clip(exact, -form.maximum, form.maximum)).max() <= 1.5


@pytest.mark.parametrize("name", NAMES)
def test_lengths_and_steps_give_the_same_as_whole_runs(name: str) -> None:
    network = CELL_NETWORKS[name]
    quantised = quantise(network, QuantizationSettings(weight_bits=8, data_bits=8))
    form = quantised.numerics.input
    x = np.random.default_rng(2).integers(-form.maximum, form.maximum, (7, 3, network.inputs))
    golden, lengths = Golden(quantised), np.array([7, 3, 1])
    whole = golden.run(x, lengths=lengths)
    for number, length in enumerate(lengths):
        stream = golden.stream(1)
        y = np.stack([stream.step(now[number : number + 1])[0] for now in x[:length]])
        np.testing.assert_array_equal(whole.y[:length, number], y)
        assert not whole.y[length:, number].any()
        for final, mine in zip((*whole.h, *whole.c), (*stream.h, *stream.c), strict=True):
            np.testing.assert_array_equal(final[number], mine[0])


def _settings(bits: int) -> QuantizationSettings:
    # Few bits, so that loading and checking the tables does not take most of the time.
    return QuantizationSettings(weight_bits=bits, data_bits=bits, gate_bits=max(6, bits), cell_bits=bits + 4)


@pytest.mark.parametrize("name", quick(NAMES, *QUICK))
def test_icarus_equals_golden(name: str, tmp_path: Path) -> None:
    network = quantise(CELL_NETWORKS[name], _settings(6))
    case = make_case(0, network, Parameters(lanes=8, macs=2, streams=2), steps=6)
    check_device(case, tmp_path, "icarus")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("peephole", "ecp5"),
        ("two_reset_before", "ecp5"),
        ("custom_c", "ice40"),
        ("other_functions", "ultrascale"),
    ],
)
def test_pipelines_of_families_equal_golden(name: str, family: str, tmp_path: Path) -> None:
    network = quantise(CELL_NETWORKS[name], _settings(7))
    parameters = Parameters.for_family(family, lanes=8, macs=2, streams=2, gate_units=2, beat_out=2)
    check_device(make_case(1, network, parameters, steps=6), tmp_path, "icarus")


@pytest.mark.slow
def test_a_gate_that_a_table_and_a_product_read_on_rtl(tmp_path: Path) -> None:
    """It is rounded half up, and saturates symmetrically before the table."""
    cell = CellBuilder()
    gate = cell.gate(0)
    built = cell.build("swish", gate * cell.apply(SIGMOID, gate))
    rows = np.random.default_rng(5).normal(size=(3, 2)) * 4
    layer = Custom(cell=built, w_ih=rows, w_hh=np.zeros((3, 3)), bias=np.zeros(3))
    network = quantise(Network(layers=(layer,)), _settings(6))
    check_device(make_case(3, network, Parameters(lanes=8, macs=2, streams=2), steps=6), tmp_path, "icarus")


@pytest.mark.slow
def test_products_with_two_registers_equal_golden(tmp_path: Path) -> None:
    """Of all products, with the fewest registers elsewhere."""
    network = quantise(CELL_NETWORKS["custom_c"], _settings(6))
    parameters = Parameters(lanes=8, macs=2, streams=2, pipeline=Pipeline(product=2))
    check_device(make_case(1, network, parameters, steps=6), tmp_path, "icarus")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("name", NAMES)
def test_random_builds_equal_golden(name: str, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    network = quantise(CELL_NETWORKS[name], _settings(int(rng.integers(6, 9))))
    check_device(make_case(seed, network, random_parameters(rng), steps=8), tmp_path, "icarus")


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("name", ["dense_first_and_mixed", "two_grus", "projections", "grus_of_several"])
def test_verilator_equals_golden(name: str, family: str, tmp_path: Path) -> None:
    network = quantise(CELL_NETWORKS[name], QuantizationSettings(weight_bits=8, data_bits=8))
    parameters = Parameters.for_family(family, lanes=8, macs=4, streams=3)
    check_device(make_case(2, network, parameters, steps=30), tmp_path, "verilator")


@pytest.mark.parametrize("name", quick(["gru", "projections", "rnn", "custom_c"], "projections"))
def test_a_state_taken_and_given_back_goes_on_with_the_same_bits(name: str, tmp_path: Path) -> None:
    network = CELL_NETWORKS[name]
    generate_build(network, tmp_path / "build", name="cells", settings=_settings(8))
    x = np.random.default_rng(3).uniform(-2, 2, (8, network.inputs))
    with Accelerator.open(tmp_path / "build") as accelerator:
        with accelerator.stream() as stream:
            first = [stream.step(now) for now in x[:4]]
            saved = stream.state
            rest = [stream.step(now) for now in x[4:]]
            stream.reset()
            stream.state = saved
            np.testing.assert_array_equal([stream.step(now) for now in x[4:]], rest)
        y, (h, c) = accelerator.run(x)
        np.testing.assert_array_equal(y, [*first, *rest])
        again, _ = accelerator.run(x[4:], state=saved)
        np.testing.assert_array_equal(again, rest)
    layers = network.pseudo_layers
    assert [part.shape[-1] for part in h] == [layer.outputs for layer in layers]
    kept = [layer for layer in layers if isinstance(layer, Lstm) or getattr(layer, "has_cell_state", False)]
    assert [part.shape[-1] for part in c] == [layer.units for layer in kept]


def test_the_lstms_description_gives_the_gate_units_bits() -> None:
    """The same network, once as a plain LSTM, once with a clip that never bites, as a cell."""
    rng = np.random.default_rng(4)
    arrays = {"w_ih": rng.normal(size=(24, 3)), "w_hh": rng.normal(size=(24, 6)), "bias": rng.normal(size=24)}
    settings = QuantizationSettings(weight_bits=12, data_bits=12, cell_range=4.0)
    x = rng.uniform(-1, 1, (50, 2, 3))
    plain, general = (
        quantise(Network(layers=(Lstm(**arrays, **options),)), settings, x)
        for options in ({}, {"cell_clip": 100.0})
    )
    assert plain.numerics.fused_lstm is not None and general.numerics.fused_lstm is None
    integers = plain.numerics.quantise_input(x)
    one, other = (Golden(network).run(integers) for network in (plain, general))
    np.testing.assert_array_equal(one.y, other.y)
    np.testing.assert_array_equal(one.c[0], other.c[0])


def _custom(cell: CellBuilder, result: Term, **fields: object) -> Custom:
    built = cell.build("own", result)
    rows = np.ones((built.gates * 2, 2))
    own = np.ones((2, built.parameters)) if built.parameters else None
    return Custom(cell=built, w_ih=rows, w_hh=rows, bias=rows[:, 0], parameters=own, **fields)


def _power(exponent: int) -> Custom:
    """The tanh of a gate times itself, and so on."""
    cell = CellBuilder()
    term = cell.gate(0)
    for _ in range(exponent - 1):
        term = term * cell.gate(0)
    return _custom(cell, cell.apply(TANH, term))


REFUSED_CELLS = {
    "cell_bits or gate_bits": (lambda: _power(6), "needs exact values of .* bits, but 48 is the most"),
    "products of products": (lambda: _power(16), r"must stay below 2\*\*\d+, but reach \d"),
    "gate": (lambda: _custom(cell := CellBuilder(), cell.gate(4)), "gates"),
    "parameter": (lambda: _custom(cell := CellBuilder(), cell.gate(0) * cell.parameter(4)), "parameters"),
    "clip": (lambda: _custom(cell := CellBuilder(), cell.gate(0), clip=1.0), "leave clip out"),
    "nothing kept": (
        lambda: _custom(cell := CellBuilder(), cell.gate(0) + cell.state()),
        "cell 'own' reads its state, but keeps none; give the new state to CellBuilder.keep",
    ),
    "two kept": (
        lambda: _custom(cell := CellBuilder(), cell.keep(cell.gate(0)) + cell.keep(cell.gate(1))),
        "cell 'own' must keep one value as its state, not 2",
    ),
    "another builder's sum": (
        lambda: _custom(cell := CellBuilder(), cell.gate(0) + CellBuilder().gate(0)),
        "terms of a cell must be of one CellBuilder",
    ),
    "another builder's function": (
        lambda: _custom(cell := CellBuilder(), cell.apply(TANH, CellBuilder().gate(0))),
        "terms of a cell must be of one CellBuilder",
    ),
    "another builder's result": (
        lambda: _custom(CellBuilder(), CellBuilder().gate(0)),
        "terms of a cell must be of one CellBuilder",
    ),
    "quotient of terms": (
        lambda: _custom(cell := CellBuilder(), cell.gate(0) / cell.gate(1)),
        "must be divided by a number that is not 0",
    ),
}


def test_terms_and_numbers_on_either_side() -> None:
    cell = CellBuilder()
    x, y = cell.gate(0), cell.gate(1)
    built = cell.build("own", 0.5 * x + (1 + y) - (-x) - (2 - y / 4))
    one, other = np.array([1.0, -2.0]), np.array([4.0, 8.0])
    values = evaluate(Reals(built), [one, other], None)
    np.testing.assert_array_equal(values[built.result], 1.5 * one + 1.25 * other - 1.0)
    assert built.state is None
    quantise(Network(layers=(_custom(cell, cell.apply(TANH, -x + y / 4)),)))


@pytest.mark.parametrize("name", REFUSED_CELLS)
def test_cells_that_cannot_be_built_are_refused(name: str) -> None:
    make, words = REFUSED_CELLS[name]
    with pytest.raises(ConfigurationError, match=words):
        quantise(Network(layers=(make(),)))
