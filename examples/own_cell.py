"""A recurrent layer with a step function of one's own, from its description to simulated hardware.

The cell is a minimal gated unit: one gate says how much of the old h stays. Run with
``python examples/own_cell.py [backend]``; needs ``rtlstm`` and, for a simulator, ``rtlstm[sim]``.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.host import Accelerator
from rtlstm.sim.reference import run_float
from rtlstm.spec.activations.functions import SIGMOID, TANH
from rtlstm.spec.cells.description import Cell, CellBuilder
from rtlstm.spec.network import Custom, Dense, Network

INPUTS, UNITS, OUTPUTS, STEPS = 4, 12, 3, 30


def gated_unit() -> Cell:
    """Return ``h = new + share * (h - new)``."""
    cell = CellBuilder()
    share = cell.apply(SIGMOID, cell.gate(0))
    new = cell.apply(TANH, cell.gate(1))
    return cell.build("gated_unit", cell.keep(new + share * (cell.state() - new)))


def network() -> Network:
    """Return the layer with random weights, and a dense layer behind it."""
    rng = np.random.default_rng(0)
    cell = gated_unit()
    layer = Custom(
        cell=cell,
        w_ih=rng.normal(size=(cell.gates * UNITS, INPUTS)) * 0.5,
        w_hh=rng.normal(size=(cell.gates * UNITS, UNITS)) * 0.5,
        bias=rng.normal(size=cell.gates * UNITS) * 0.5,
    )
    return Network(
        name="own_cell", layers=(layer, Dense(weight=rng.normal(size=(OUTPUTS, UNITS)), bias=[0.0] * OUTPUTS))
    )


def compare(backend: str) -> dict[str, float]:
    """Run golden model and backend; return the largest differences from each other and from floats."""
    model = network()
    x = np.random.default_rng(1).uniform(-1, 1, (STEPS, INPUTS))
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder) / model.name
        settings = QuantizationSettings(weight_bits=12, data_bits=12)
        generate_build(model, build, name=model.name, settings=settings, calibration=x)
        found = {}
        for name in ("golden", backend):
            with Accelerator.open(build, backend=name) as accelerator:
                found[name] = accelerator.run(x)[0]
    expected = run_float(model, x[:, None]).y[:, 0]
    return {
        "bits": float(np.abs(found[backend] - found["golden"]).max()),
        "float": float(np.abs(found["golden"] - expected).max()),
    }


def main() -> None:
    """Print the differences."""
    differences = compare(sys.argv[1] if len(sys.argv) > 1 else "golden")
    print(f"largest difference from the golden model: {differences['bits']:g}")
    print(f"largest difference from the float model:  {differences['float']:.2g}")


if __name__ == "__main__":
    main()
