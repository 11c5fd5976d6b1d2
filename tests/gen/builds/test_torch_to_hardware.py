"""A PyTorch model with layers before and behind its GRU, to a build: near PyTorch, and RTL bit for bit."""

import numpy as np
import pytest
from support.lazy import nets, nn, torch

from rtlstm import Accelerator, Parameters, QuantizationSettings, read_model
from rtlstm.gen.builds.generate import generate_build

pytestmark = pytest.mark.rtl


def call(net, x):
    x = net.conv(x.permute(1, 2, 0))[:, :, :-2].relu().permute(2, 0, 1)
    y = net.norm(net.gru(x)[0].permute(1, 2, 0)).permute(2, 0, 1)
    return torch.sigmoid(net.head(nn.functional.elu(y)))


def model():
    """A causal convolution, a GRU, batch norm and two dense layers."""
    conv, gru, norm, head = nn.Conv1d(3, 5, 3, padding=2), nn.GRU(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)
    nn.init.uniform_(norm.running_mean, -0.2, 0.2)
    return nets.Net(call, conv=conv, gru=gru, norm=norm, head=head).eval()


@pytest.mark.slow
def test_model_on_golden_and_rtl(tmp_path):
    torch.manual_seed(0)
    net, x = model(), torch.rand(12, 2, 3) * 2 - 1
    expected = net(x).detach().numpy()
    generate_build(
        read_model(net).network,
        tmp_path / "model",
        settings=QuantizationSettings(weight_bits=16, data_bits=16),
        parameters=Parameters(lanes=4, macs=4, streams=2),
        calibration=x.numpy(),
    )
    with Accelerator.open(tmp_path / "model") as golden:
        y, _ = golden.run(x.numpy())
    np.testing.assert_allclose(y, expected, atol=5e-4)
    with Accelerator.open(tmp_path / "model", backend="icarus") as rtl:
        np.testing.assert_array_equal(rtl.run(x.numpy()[:4])[0], y[:4])
