"""The phase of a walker's gait from a motion sensor at the hip: a published Keras model, streaming.

The model (ao_compensation_model 0.1.6, MIT licence, fetched by way of pip) convolves the last 20 samples of
angle and angular velocity, averages 3 steps, and gives the sine and cosine of the phase by way of a GRU of
16 units. Its authors run it on the last 200 samples for every new one; here a stream keeps the state, and
each sample is computed once. The recording is the one that they validate on, 31,390 samples at 100 Hz.
Run with ``python examples/gait_phase.py [float|BACKEND]``; needs ``rtlstm[keras,sim]``.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from wheels import fetch

from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.host import Accelerator
from rtlstm.sim.reference import run_float
from rtlstm.spec.network import Network
from rtlstm.spec.parameters import Parameters

Floats = NDArray[np.float64]

FOLDER = "ao_compensation_model"
MODEL = f"{FOLDER}/model/2026_03_26_15_45_0.0212_best/gru_model.keras"
RECORDING = f"{FOLDER}/dataset/training/training_data_H_3km_target.csv"
SHA256 = {
    MODEL: "aad659d3b787fb00717a07cff5837b8e5603e7aae3622387b8fcea5add7d6217",
    RECORDING: "8469bdd135e43414f04d65218b2e1c4bf8ce224e9f73d468074ed244a2136010",
}
CENTRE, SCALE = np.array([0.21172767, -0.0401952]), np.array([0.60460822, 2.08950286])
"""Of angle and angular velocity: what the model's scaler takes off, and divides by."""
SETTLING = 200
"""Samples that the authors' windows have; phases before are not compared."""
TYPICAL = 5000
"""Samples that calibrate the formats."""


def load() -> tuple[Path, Floats, Floats]:
    """Return the model's file, scaled samples ``(T, 2)``, and the true phase ``(T,)``."""
    model, recording = fetch("ao_compensation_model==0.1.6", SHA256).values()
    columns = np.loadtxt(recording, delimiter=";", skiprows=1, usecols=(1, 2, 5, 6))
    return model, (columns[:, :2] - CENTRE) / SCALE, phase(columns[:, [3, 2]])


def network(model: Path) -> Network:
    """The network up to sine and cosine; their length, which the model's last layer makes 1, has no say."""
    return read_model(model, ReadOptions(output="dense")).network


def phase(y: Floats) -> Floats:
    """The angle of ``(..., 2)`` sines and cosines."""
    return np.arctan2(y[..., 0], y[..., 1])


def run(model: Path, x: Floats, backend: str) -> Floats:
    """Sines and cosines ``(T, 2)`` of a recording, in float or from a build on a backend."""
    if backend == "float":
        return run_float(network(model), x[:, None]).y[:, 0]
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder) / "gait"
        settings = QuantizationSettings(weight_bits=16, data_bits=16, input_range=4.0)
        parameters = Parameters(lanes=8, macs=8, beat_in=2, beat_out=2)
        generate_build(
            network(model), build, settings=settings, parameters=parameters, calibration=x[:TYPICAL]
        )
        with Accelerator.open(build, backend=backend) as accelerator:
            y, _ = accelerator.run(x)
    return np.asarray(y)


def differences(one: Floats, other: Floats) -> Floats:
    """How far phases are apart, in radians, after the first ones."""
    return np.abs(np.angle(np.exp(1j * (one - other))))[SETTLING:]


def compare(y: Floats, reference: Floats, truth: Floats) -> dict[str, float]:
    """Figures of a run: from the float model's phase, and from the true one."""
    from_float = differences(phase(y), phase(reference))
    return {
        "largest difference from the float model, rad": float(from_float.max()),
        "mean difference from the float model, rad": float(from_float.mean()),
        "mean error of the phase, rad": float(differences(phase(y), truth).mean()),
        "mean error of the float model's phase, rad": float(differences(phase(reference), truth).mean()),
    }


if __name__ == "__main__":
    path, samples, true_phase = load()
    in_float = run(path, samples, "float")
    chosen = sys.argv[1] if len(sys.argv) > 1 else "float"
    result = in_float if chosen == "float" else run(path, samples, chosen)
    for name, figure in compare(result, in_float, true_phase).items():
        print(f"{name}: {figure:.3g}")
