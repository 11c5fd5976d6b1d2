"""Formats, rounding and saturation, against exact rational arithmetic and APyTypes."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from apytypes import APyFixed, OverflowMode, QuantizationMode
from hypothesis import given
from hypothesis import strategies as st

from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.fixed import Format, round_shift, saturate


@given(st.integers(-(2**50), 2**50), st.integers(0, 40))
def test_round_shift_is_half_up(value: int, shift: int) -> None:
    assert round_shift(value, shift) == floor(Fraction(value, 1 << shift) + Fraction(1, 2))


@given(st.integers(-(2**40), 2**40), st.integers(2, 32))
def test_saturate_is_symmetric(value: int, bits: int) -> None:
    limit = 2 ** (bits - 1) - 1
    assert saturate(value, bits) == max(-limit, min(limit, value))
    assert saturate(-value, bits) == -saturate(value, bits)


@given(st.integers(-(2**30), 2**30), st.integers(1, 16), st.integers(4, 20))
def test_rounding_agrees_with_apytypes(value: int, drop: int, bits: int) -> None:
    wide = APyFixed.from_float(float(value), int_bits=40, frac_bits=0) >> drop
    wide = wide.cast(int_bits=40, frac_bits=drop)
    narrow = wide.cast(
        int_bits=bits, frac_bits=0, quantization=QuantizationMode.RND, overflow=OverflowMode.SAT
    )
    ours = int(saturate(round_shift(value, drop), bits))
    assert ours == max(int(float(narrow)), -(2 ** (bits - 1) - 1))


@given(st.floats(1e-6, 1e6), st.integers(4, 24))
def test_covering_is_the_finest_format_that_holds_the_range(magnitude: float, bits: int) -> None:
    format = Format.covering(bits, magnitude)
    assert format.saturated([magnitude, -magnitude]) == 0
    assert Format(bits=bits, fraction=format.fraction + 1).saturated([magnitude]) == 1


def test_float_round_trip() -> None:
    format = Format(bits=8, fraction=5)
    integers = np.arange(-format.maximum, format.maximum + 1)
    np.testing.assert_array_equal(format.to_integers(format.to_floats(integers)), integers)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bits": 1, "fraction": 0}, "bits: must be greater than or equal to 2, not 1"),
        ({"bits": 49, "fraction": 0}, "bits: must be less than or equal to 48, not 49"),
        ({"bits": 8}, "fraction: Field required"),
        ({"bits": 8, "fraction": "x"}, "fraction: must be a valid integer, .*, not 'x'"),
    ],
)
def test_bad_formats_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Format(**fields)
