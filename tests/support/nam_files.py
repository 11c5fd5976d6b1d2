"""``.nam`` files in the layout of Neural Amp Modeler."""

import json
from pathlib import Path
from typing import Any

from support.lazy import nn, torch


def content(layers: int = 1, inputs: int = 1, units: int = 4) -> tuple[dict[str, Any], Any, Any, Any]:
    """A file, and the modules and states (layers, 1, units) that it holds."""
    torch.manual_seed(layers)
    lstm, head = nn.LSTM(inputs, units, layers), nn.Linear(units, 1)
    h, c = 0.3 * torch.randn(2, layers, 1, units)
    parts = []
    for at in range(layers):
        part = {
            name: getattr(lstm, f"{name}_l{at}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        }
        matrix = torch.cat([part["weight_ih"], part["weight_hh"]], dim=1)
        parts += [matrix, part["bias_ih"] + part["bias_hh"], h[at], c[at]]
    weights = torch.cat([part.detach().flatten() for part in (*parts, head.weight, head.bias)]).tolist()
    config = {"input_size": inputs, "hidden_size": units, "num_layers": layers}
    found = {
        "version": "0.5.4",
        "metadata": None,
        "architecture": "LSTM",
        "config": config,
        "weights": weights,
    }
    return {**found, "sample_rate": 48_000}, lstm, head, (h, c)


def save(path: Path, found: Any) -> Path:
    (path / "amp.nam").write_text(json.dumps(found))
    return path / "amp.nam"
