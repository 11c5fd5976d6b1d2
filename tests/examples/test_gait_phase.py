"""A published Keras GRU gives the phase that Keras gives; its files are downloaded, so the test is slow."""

import os

import numpy as np
import pytest
from support.example_file import load_example

from rtlstm.zoo.gait import SETTLING, load_gait, phase

pytestmark = pytest.mark.rtl

os.environ.setdefault("KERAS_BACKEND", "torch")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_gait_phase() -> None:
    """In float as Keras'; on the golden model nearly so; on the RTL the golden model's bits."""
    keras = pytest.importorskip("keras")
    example = load_example("gait_phase")
    path, x, truth = load_gait()
    in_float = example.run(path, x, "float")
    ends = np.arange(SETTLING, len(x), len(x) // 128)[:128]
    windows = np.stack([x[end - SETTLING : end] for end in ends])
    theirs = keras.models.load_model(path, compile=False).predict(windows, batch_size=128, verbose=0)
    phases = phase(in_float[ends - 1]), phase(np.asarray(theirs, dtype=np.float64))
    assert np.abs(np.angle(np.exp(1j * np.subtract(*phases)))).max() < 0.002
    golden = example.run(path, x, "golden")
    figures = example.compare(golden, in_float, truth)
    assert figures["largest difference from the float model, rad"] < 0.005
    assert figures["mean error of the phase, rad"] < 0.14
    np.testing.assert_array_equal(example.run(path, x, "verilator"), golden)
