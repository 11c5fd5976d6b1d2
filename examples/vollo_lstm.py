"""A two-layer LSTM with a linear head, from PyTorch to simulated hardware, twice.

The network is LSTM 128 -> 256 x 2, Linear 256 -> 16, with PyTorch's own random weights, over 20
steps: first the whole sequence in one call, then step by step with the state kept on the device.
Both are compared with PyTorch (absolute and relative tolerance 1e-2), and with each other (on
every bit). Run with ``python examples/vollo_lstm.py [backend]``; needs ``rtlstm[torch,sim]``.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.frontends import read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.host import Accelerator
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.program.schedule import offer_cycles

STEPS, INPUTS, UNITS, LAYERS, OUTPUTS = 20, 128, 256, 2, 16


class LstmNet(torch.nn.Module):
    """An LSTM and a linear layer on each of its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(INPUTS, UNITS, num_layers=LAYERS)
        self.linear = torch.nn.Linear(UNITS, OUTPUTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``(T, 16)`` for ``(T, 128)``."""
        hidden, _ = self.lstm(x)
        return self.linear(hidden)


def compare(backend: str) -> dict[str, float]:
    """Run both ways on a backend; return the figures.

    Raises
    ------
    AssertionError
        If a comparison fails.
    """
    torch.manual_seed(0)
    model = LstmNet().eval()
    x = torch.randn(STEPS, INPUTS)
    with torch.no_grad():
        expected = model(x).numpy()
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder) / "lstm_net"
        manifest = generate_build(
            read_model(model).network,
            build,
            name="lstm_net",
            settings=QuantizationSettings(weight_bits=16, data_bits=16, quick=True),
            parameters=Parameters(lanes=4, macs=64, beat_in=16, beat_out=16),
            calibration=x.numpy(),
        )
        with Accelerator.open(build, backend=backend) as accelerator:
            whole, _ = accelerator.run(x.numpy())
            with accelerator.stream() as stream:
                steps = np.stack([stream.step(row) for row in x.numpy()])
    np.testing.assert_allclose(whole, expected, atol=1e-2, rtol=1e-2)
    np.testing.assert_allclose(steps, expected, atol=1e-2, rtol=1e-2)
    np.testing.assert_array_equal(steps, whole)
    cycles = manifest.cycles
    sequence = offer_cycles(manifest.program, manifest.parameters, STEPS)[-1]
    return {
        "largest difference from PyTorch": float(np.abs(whole - expected).max()),
        "bits different between the two ways": 0,
        "cycles per streaming step": cycles.step_latency_cycles,
        "of them array cycles": cycles.array_cycles,
        "cycles between steps, back to back": cycles.step_interval_cycles,
        f"cycles per sequence of {STEPS} steps": sequence,
    }


if __name__ == "__main__":
    for name, figure in compare(sys.argv[1] if len(sys.argv) > 1 else "golden").items():
        print(f"{name}: {figure:g}")
