"""Whether results are near each other, for the front ends' tests."""

import numpy as np


def close(actual, expected, tolerance=1e-5):
    """Fail unless both have the same shape and agree."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() < tolerance
