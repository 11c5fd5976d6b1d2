"""Activation tables: at most 1 unit in the last place off, over every input of every format."""

import mpmath
import numpy as np
import pytest

from rtlstm.spec.activations.functions import ACTIVATIONS, ActivationFunction, FunctionDefinition
from rtlstm.spec.activations.interpolated import ActivationTable, correctly_rounded, design_table
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format

FUNCTIONS = ("sigmoid", "tanh")


def formats(bits: int, max_abs: int) -> tuple[Format, Format]:
    """Input format that reaches ``+-2**max_abs``, and output format of ``bits`` bits."""
    reads = min(bits + 2, 20)
    return Format(bits=reads, fraction=reads - 1 - max_abs), Format(bits=bits, fraction=bits - 1)


def all_inputs(format: Format) -> np.ndarray:
    return np.arange(-format.maximum, format.maximum + 1)


@pytest.mark.parametrize("bits", range(6, 19))
@pytest.mark.parametrize("max_abs", [1, 3, 4])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_within_one_unit_of_the_correctly_rounded_value(function, max_abs, bits):
    reads, gives = formats(bits, max_abs)
    table = design_table(function, reads, gives)
    integers = all_inputs(reads)
    wanted = correctly_rounded(function, reads.to_floats(integers), gives)
    assert np.abs(table.compute(integers) - wanted).max() <= 1


SIGNS = [
    ActivationFunction.of(name, alpha, beta)
    for name, alpha, beta in [
        ("softsign", None, None),
        ("softplus", None, None),
        ("elu", 1.0, None),
        ("elu", -0.3, None),
        ("elu", -2.0, None),
        ("scaled_tanh", 1.7, 0.7),
        ("scaled_tanh", -1.7, 0.7),
        ("scaled_tanh", 1.7, -0.7),
        ("scaled_tanh", -1.7, -0.7),
        ("silu", None, None),
        ("silu", -1.7, None),
        ("gelu", None, None),
        ("gelu_tanh", None, None),
        ("mish", None, None),
        ("selu", None, None),
        ("hard_swish", None, None),
    ]
]


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("function", SIGNS, ids=str)
def test_sign_of_every_value(function, direct):
    """Whatever the signs of input and parameters: within a unit of the float function."""
    reads = Format(bits=9, fraction=6)
    gives = Format.covering(8, function.max_abs(reads.maximum * reads.step))
    if function.within_one:
        gives = Format(bits=8, fraction=7)
    table = design_table(function, reads, gives, direct)
    integers = all_inputs(reads)
    exact = np.ldexp(function(reads.to_floats(integers)), gives.fraction)
    saturated = np.clip(exact, -gives.maximum, gives.maximum)
    assert np.abs(table.compute(integers) - saturated).max() <= (0.5 if direct else 1.5)


@pytest.mark.parametrize("bits", [6, 12, 18])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_rounding_agrees_with_forty_digits(function, bits):
    reads, gives = formats(bits, 4)
    integers = np.random.default_rng(bits).choice(all_inputs(reads), size=300)
    mpmath.mp.dps = 40
    for integer in integers.tolist():
        x = mpmath.ldexp(integer, -reads.fraction)
        exact = mpmath.tanh(x) if function == "tanh" else 1 / (1 + mpmath.exp(-x))
        rounded = int(mpmath.floor(mpmath.ldexp(exact, gives.fraction) + mpmath.mpf(1) / 2))
        wanted = max(-gives.maximum, min(gives.maximum, rounded))
        assert correctly_rounded(function, np.array([float(x)]), gives)[0] == wanted


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("bits", [6, 9, 10])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_middle_tables_are_within_one_unit_between_two_inputs(function, bits, direct):
    """Of every code, the lowest too."""
    reads, gives = formats(bits, 3)
    table = design_table(function, reads, gives, direct, middle=True)
    integers = np.arange(reads.lowest, reads.maximum + 1)
    wanted = correctly_rounded(function, reads.to_floats(integers) + reads.step / 2, gives)
    odd = function == "tanh"
    if odd:
        # Half of it is computed, and the sign given to what was rounded.
        wanted = np.where(integers < 0, -wanted[::-1], wanted)
    assert np.abs(table.compute(integers) - wanted).max() <= (0 if direct else 1)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_symmetry(function):
    reads, gives = formats(16, 4)
    table = design_table(function, reads, gives)
    integers = np.arange(1, reads.maximum + 1)
    if function == "tanh":
        np.testing.assert_array_equal(table.compute(-integers), -table.compute(integers))
    else:
        mirrored = (1 << gives.fraction) - table.compute(integers)
        assert np.abs(table.compute(-integers) - mirrored).max() <= 2


def test_a_damaged_table_misses_the_bound():
    """The exhaustive check can fail: one entry moved by two units is found."""
    reads, gives = formats(8, 3)
    table = design_table("sigmoid", reads, gives)
    base = list(table.base)
    base[3] += 2 << table.extra
    damaged = table.replace(base=tuple(base))
    integers = all_inputs(reads)
    wanted = correctly_rounded("sigmoid", reads.to_floats(integers), gives)
    assert np.abs(damaged.compute(integers) - wanted).max() > 1


@pytest.mark.parametrize(("reads", "gives"), [(3, 8), (21, 8), (8, 5), (8, 19)])
def test_formats_out_of_range_are_refused(reads, gives):
    with pytest.raises(ConfigurationError, match="4 to 20 input bits and gives 6 to 18"):
        design_table("tanh", Format(bits=reads, fraction=2), Format(bits=gives, fraction=gives - 1))


def test_table_of_the_wrong_length_is_refused():
    reads, gives = formats(8, 3)
    table = design_table("tanh", reads, gives)
    with pytest.raises(ConfigurationError, match="needs 32 bases and slopes"):
        ActivationTable(**(table.model_dump() | {"base": table.base[:-1]}))


@pytest.mark.parametrize(
    ("formula", "more", "words"),
    [
        (
            lambda x, a, b: x * np.exp(-(x**2)),
            {},
            "largest magnitude of activation bad over .* must be at an end",
        ),
        (lambda x, a, b: np.sqrt(x), {}, "formula of activation bad must be finite .* for x = -0.015625"),
        (lambda x, a, b: np.log(np.abs(x)), {}, "formula of activation bad must be finite .* for x = 0"),
        (lambda x, a, b: np.maximum(x, 0.1 * x), {"odd": True}, "activation bad must be odd"),
        (
            lambda x, a, b: np.tanh(x),
            {"bounds": (0.0, 1.0)},
            r"activation bad must be within its bounds, 0 \.\. 1, but reaches -1 \.\. 1; correct the bounds",
        ),
    ],
)
def test_definitions_that_do_not_hold_are_refused(formula, more, words) -> None:
    ACTIVATIONS.add("bad", FunctionDefinition(formula=formula, **more))
    try:
        with pytest.raises(ConfigurationError, match=words):
            ActivationFunction.of("bad")(np.ones(3))
    finally:
        ACTIVATIONS.remove("bad")


def test_a_name_with_another_definition_has_another_table() -> None:
    tables = []
    for factor in (1.0, 0.5):
        ACTIVATIONS.add("mine", FunctionDefinition(formula=lambda x, a, b, f=factor: f * np.arctan(x)))
        try:
            tables.append(design_table("mine", Format(bits=8, fraction=4), Format(bits=8, fraction=6)))
        finally:
            ACTIVATIONS.remove("mine")
    assert tables[0].base != tables[1].base


def test_all_functions_hold_what_definitions_must() -> None:
    for name in ACTIVATIONS:
        assert np.isfinite(ActivationFunction.of(name)(np.linspace(-9, 9, 7))).all()
