"""Softmax and argmax on the host, against PyTorch's."""

import numpy as np
import pytest
from support.lazy import torch

from rtlstm.host import argmax, softmax, top_k
from rtlstm.spec.errors import InputError

SCORES = np.array([[[1.0, -3.0, 2.5], [1000.0, 999.0, -1000.0]], [[0.0, 0.0, 0.0], [-7.0, 7.0, 7.0]]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_is_pytorchs(dtype: type):
    found = softmax(SCORES.astype(dtype))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, torch.softmax(torch.tensor(SCORES), dim=-1).numpy(), rtol=1e-12)


def test_argmax_takes_the_first_of_equal_ones_and_codes_too():
    expected = [[2, 0], [0, 1]]
    np.testing.assert_array_equal(argmax(SCORES), expected)
    np.testing.assert_array_equal(argmax(SCORES.astype(np.int64)), [[2, 0], [0, 1]])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.array([1, 2]), "softmax needs real scores, not integers"),
        (np.float64(1.0), r"classes in the last axis, \(\.\.\., O\), not shape \(\)"),
        (np.zeros((3, 0)), r"not shape \(3, 0\)"),
    ],
)
def test_what_has_no_classes_is_refused(given: np.ndarray, words: str):
    with pytest.raises(InputError, match=words):
        softmax(given)


def test_the_largest_are_pytorchs_the_first_of_equal_ones_first():
    rng = np.random.default_rng(0)
    real, codes = rng.normal(size=(5, 3, 11)), rng.integers(-2, 3, (5, 3, 11))
    classes, scores = top_k(real, 4)
    expected = torch.topk(torch.tensor(real), 4)
    np.testing.assert_array_equal(classes, expected.indices.numpy())
    np.testing.assert_array_equal(scores, expected.values.numpy())
    classes, scores = top_k(codes, 11)
    order = np.argsort(-codes, axis=-1, kind="stable")
    np.testing.assert_array_equal(classes, order)
    np.testing.assert_array_equal(scores, np.sort(codes, axis=-1)[..., ::-1])
    np.testing.assert_array_equal(top_k(codes, 1)[0][..., 0], argmax(codes))
    for wrong in (0, 12, 1.0, True):
        with pytest.raises(
            InputError, match=f"k must be a whole number of 1 to 11, the classes, not {wrong}"
        ):
            top_k(codes, wrong)
