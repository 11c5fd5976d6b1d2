"""A guitar amplifier: a ``.nam`` file of one LSTM layer of 16 units, sample by sample at 48 kHz.

    python examples/amplifier.py MODEL.nam [BACKEND]
    python examples/amplifier.py made.nam [BACKEND]     # makes a small model first, if there is no such file

The file that is made here is of a synthetic amplifier (a clipping stage between two filters), trained for a
minute: it shows the way, not a sound. Any LSTM model of Neural Amp Modeler takes its place. The stream begins
in the file's own state. Needs ``rtlstm[sim,torch]``; without making a model, ``rtlstm[sim]``.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import estimate
from rtlstm.gen.builds.compiled import compile
from rtlstm.gen.frontends import read_model
from rtlstm.sim.reference import run_float
from rtlstm.spec.manifest import Manifest

Floats = NDArray[np.float64]

RATE, UNITS = 48_000, 16
DEVICE = "lfe5u-25f-8"


def pluck(samples: int, seed: int) -> Floats:
    """Notes of plucked strings (Karplus and Strong 1983), within +-1."""
    rng = np.random.default_rng(seed)
    out = np.zeros(samples)
    for begin in range(0, samples, RATE // 8):
        period = int(RATE / rng.uniform(82, 660))
        string = rng.uniform(-1, 1, period)
        for at in range(begin, min(samples, begin + RATE // 4), period):
            out[at : at + period] += string[: samples - at]
            string = 0.498 * (string + np.roll(string, -1))
    return 0.8 * out / np.abs(out).max()


def amplify(x: Floats) -> Floats:
    """A high-pass filter, a stage that clips its halves unlike, and a low-pass filter."""
    y, slow, smooth = np.zeros_like(x), 0.0, 0.0
    for at, sample in enumerate(x):
        slow += 0.01 * (sample - slow)
        driven = np.tanh(4.0 * (sample - slow) + 0.3) - np.tanh(0.3)
        smooth += 0.3 * (driven - smooth)
        y[at] = smooth
    return y


def make(path: Path, updates: int = 200) -> None:
    """Train an LSTM on the synthetic amplifier, and write it as Neural Amp Modeler does."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    x = pluck(2 * RATE, 0)
    pieces = torch.from_numpy(np.stack([x, amplify(x)]).reshape(2, -1, 1500, 1)).float().transpose(1, 2)
    lstm, head = nn.LSTM(1, UNITS), nn.Linear(UNITS, 1)
    parameters = [*lstm.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, 0.01)
    for _ in range(updates):
        chosen = torch.randint(0, pieces.shape[2], (16,))
        begin = int(torch.randint(0, 1000, ()))
        piece = pieces[:, begin : begin + 500, chosen]
        optimizer.zero_grad()
        nn.functional.mse_loss(head(lstm(piece[0])[0])[100:], piece[1][100:]).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    with torch.no_grad():
        _, (h, c) = lstm(torch.zeros(RATE // 10, 1, 1))
        matrix = torch.cat([lstm.weight_ih_l0, lstm.weight_hh_l0], dim=1)
        parts = [matrix, lstm.bias_ih_l0 + lstm.bias_hh_l0, h, c, head.weight, head.bias]
        weights = torch.cat([part.flatten() for part in parts]).tolist()
    config = {"input_size": 1, "hidden_size": UNITS, "num_layers": 1}
    content = {"version": "0.5.4", "architecture": "LSTM", "config": config, "weights": weights}
    path.write_text(json.dumps(content | {"sample_rate": RATE}))


def error_to_signal(y: Floats, wanted: Floats) -> float:
    """The energy of the error by that of the signal, as amplifier models are compared."""
    return float(np.sum((y - wanted) ** 2) / np.sum(wanted**2))


def run(path: Path, backend: str, samples: int) -> dict[str, float]:
    """Run a model in float and on a backend; return the error to signal and the time of a sample in us."""
    model = read_model(path)
    x = pluck(RATE // 4 + samples, 1)[:, None]
    typical, x = x[: RATE // 4], x[RATE // 4 :]
    state = model.initial_state_of(1)
    wanted = run_float(model.network, x[:, None], state).y[:, 0]
    with tempfile.TemporaryDirectory() as folder:
        build = compile(
            model, folder=Path(folder) / "amplifier", calibration=typical[:, None], calibration_state=state,
            lanes=32, macs=4, gate_units=4, family="ecp5",
        )  # fmt: skip
        with build.open(backend) as accelerator:
            y, _ = accelerator.run(x[:, None], state=state)
        manifest = Manifest.load(build.folder)
    found = estimate(manifest, find_device(DEVICE))
    assert found is not None
    assert found.fmax_mhz is not None
    return {
        "error to signal against float": error_to_signal(y[:, 0], wanted),
        "cycles a sample": manifest.cycles.step_interval_cycles,
        f"us a sample on {DEVICE}, estimated": manifest.cycles.step_interval_cycles / found.fmax_mhz,
        "us between samples": 1e6 / RATE,
    }


def main() -> None:
    """Print the figures of a model."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    if not path.exists():
        print(f"makes {path}, a synthetic amplifier")
        make(path)
    backend = sys.argv[2] if len(sys.argv) > 2 else "golden"
    for name, value in run(path, backend, RATE // 4 if backend == "golden" else 2000).items():
        print(f"{name}: {value:.4g}")


if __name__ == "__main__":
    main()
