"""The phase of a walker's gait from a motion sensor at the hip: a published Keras GRU.

ao_compensation_model 0.1.6 convolves the last 20 samples of angle and angular velocity, averages 3 steps,
and gives the sine and cosine of the phase by way of a GRU of 16 units. Its authors run it on the last 200
samples for every new one; here a stream keeps the state, and each sample is computed once. The recording is
the one that they validate on, 31,390 samples at 100 Hz.
"""

from pathlib import Path

import numpy as np

from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.gen.frontends.arrays import import_extra
from rtlstm.gen.frontends.reading import ReadResult
from rtlstm.spec.progress import Progress
from rtlstm.zoo.entry import Entry, Floats, Metric, Package, Subject, fetch

_FOLDER = "ao_compensation_model"
_MODEL = f"{_FOLDER}/model/2026_03_26_15_45_0.0212_best/gru_model.keras"
_RECORDING = f"{_FOLDER}/dataset/training/training_data_H_3km_target.csv"
_PACKAGE = Package(
    "ao_compensation_model==0.1.6",
    {
        _MODEL: "aad659d3b787fb00717a07cff5837b8e5603e7aae3622387b8fcea5add7d6217",
        _RECORDING: "8469bdd135e43414f04d65218b2e1c4bf8ce224e9f73d468074ed244a2136010",
    },
)
_CENTRE, _SCALE = np.array([0.21172767, -0.0401952]), np.array([0.60460822, 2.08950286])
"""What the model's scaler takes off angle and angular velocity, and divides them by."""
SETTLING = 200
"""Samples that the authors' windows have; phases before are not compared."""
TYPICAL = 5000
"""Samples that calibrate the formats."""


def load_gait() -> tuple[Path, Floats, Floats]:
    """Return the model's file, scaled samples ``(T, 2)``, and the true phase ``(T,)``."""
    model, recording = fetch(_PACKAGE).values()
    columns = np.loadtxt(recording, delimiter=";", skiprows=1, usecols=(1, 2, 5, 6))
    return model, (columns[:, :2] - _CENTRE) / _SCALE, phase(columns[:, [3, 2]])


def read_gait(model: Path) -> ReadResult:
    """Read it up to sine and cosine; their length, which the model's last layer makes 1, has no say."""
    return read_model(model, ReadOptions(output="dense"))


def phase(y: Floats) -> Floats:
    """The angle of ``(..., 2)`` sines and cosines."""
    return np.arctan2(y[..., 0], y[..., 1])


def differences(one: Floats, other: Floats) -> Floats:
    """How far phases are apart, in radians, after the first ones."""
    apart: Floats = np.abs(np.angle(np.exp(1j * (one - other))))
    return apart[SETTLING:]


def _load(progress: Progress | None) -> Subject:
    import_extra("h5py", "zoo", "gait-phase")
    path, x, truth = load_gait()
    return Subject(
        read_gait(path),
        x[:, None],
        TYPICAL,
        judge=lambda y, begin: float(
            differences(phase(y[:, 0]), truth[: len(y)])[max(0, begin - SETTLING) :].mean()
        ),
    )


GAIT = Entry(
    name="gait-phase",
    does="phase of a walker's gait, from a motion sensor at the hip",
    package=_PACKAGE,
    licence="MIT",
    network="Conv1D 2 -> 16, mean of 3, GRU 16 -> 16, dense 2",
    metric=Metric("mean error of the phase, rad", margin=0.001, less_is_better=True),
    load=_load,
    stretch=2000,
    device="lfe5u-25f-8",
    options={"input_range": 4.0},
)
