"""The phase of a walker's gait from a motion sensor at the hip: a published Keras model, streaming.

The model (ao_compensation_model 0.1.6) and its recording are those of ``rtlstm zoo gait-phase``. Its authors
run it on the last 200 samples for every new one; here a stream keeps the state, and each sample is computed
once. Run with ``python examples/gait_phase.py [float|BACKEND]``; needs ``rtlstm[keras,sim]``.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.host import Accelerator
from rtlstm.sim.reference import run_float
from rtlstm.spec.parameters import Parameters
from rtlstm.zoo.gait import TYPICAL, differences, load_gait, phase, read_gait

Floats = NDArray[np.float64]


def run(model: Path, x: Floats, backend: str) -> Floats:
    """Sines and cosines ``(T, 2)`` of a recording, in float or from a build on a backend."""
    network = read_gait(model).network
    if backend == "float":
        return run_float(network, x[:, None]).y[:, 0]
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder) / "gait"
        settings = QuantizationSettings(weight_bits=16, data_bits=16, input_range=4.0)
        parameters = Parameters(lanes=8, macs=8, beat_in=2, beat_out=2)
        generate_build(network, build, settings=settings, parameters=parameters, calibration=x[:TYPICAL])
        with Accelerator.open(build, backend=backend) as accelerator:
            y, _ = accelerator.run(x)
    return np.asarray(y)


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
    path, samples, true_phase = load_gait()
    in_float = run(path, samples, "float")
    chosen = sys.argv[1] if len(sys.argv) > 1 else "float"
    result = in_float if chosen == "float" else run(path, samples, chosen)
    for name, figure in compare(result, in_float, true_phase).items():
        print(f"{name}: {figure:.3g}")
