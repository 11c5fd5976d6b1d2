"""Six ways to use ``torch.nn.LSTM``, with fixed lengths and with packed sequences, on a simulated device.

Each module is read by the front end, which refuses the sixth and says why. One build holds the LSTM
that all of them share; in its place the driver's drop-in runs each module's own forward, PackedSequences
and all, and every result is compared with PyTorch's (within 2e-3). Run with
``python examples/torch_usages.py [backend]``; needs ``rtlstm[torch,sim]``.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.nn.utils import rnn

from rtlstm.gen.builds.generate import generate_build
from rtlstm.gen.frontends import read_model
from rtlstm.gen.quantise.quantiser import QuantizationSettings
from rtlstm.host import Accelerator
from rtlstm.host.torch import LSTM
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Lstm
from rtlstm.spec.parameters import Parameters

STEPS, BATCH, INPUTS, UNITS = 5, 2, 3, 7


class FixedLength(torch.nn.Module):
    """Every sequence has all steps."""

    def __init__(self, lstm: torch.nn.Module) -> None:
        super().__init__()
        self.lstm = lstm

    def forward(self, inputs):
        """Return outputs, final h and final c."""
        output, (h, c) = self.lstm(inputs)
        return output, h, c


class PackedSorted(FixedLength):
    """Sequences of several lengths, the longest first; outputs padded again."""

    SORTED = True

    def forward(self, inputs, lengths):
        """Return padded outputs, final h and final c."""
        packed = rnn.pack_padded_sequence(inputs, lengths, enforce_sorted=self.SORTED)
        output, (h, c) = self.lstm(packed)
        padded, _ = rnn.pad_packed_sequence(output)
        return padded, h, c


class PackedUnsorted(PackedSorted):
    """The same in any order of lengths."""

    SORTED = False


class FinalStateOnly(FixedLength):
    """Only the final states are used, so the outputs need not be padded."""

    def forward(self, inputs, lengths):
        """Return final h and final c."""
        packed = rnn.pack_padded_sequence(inputs, lengths)
        _, (h, c) = self.lstm(packed)
        return h, c


class PackedReturned(FixedLength):
    """The packed outputs themselves are returned: the driver packs them."""

    def forward(self, inputs, lengths):
        """Return the packed outputs' data, final h and final c."""
        packed = rnn.pack_padded_sequence(inputs, lengths, enforce_sorted=False)
        output, (h, c) = self.lstm(packed)
        return output.data, h, c


class PackedConsumed(FixedLength):
    """Another operator reads the packed outputs: refused, for a packed tensor's shape depends on the data."""

    def forward(self, inputs, lengths):
        """Return the largest output."""
        packed = rnn.pack_padded_sequence(inputs, lengths, enforce_sorted=False)
        output, _ = self.lstm(packed)
        return torch.max(output.data)


SORTED_LENGTHS, LENGTHS = torch.tensor([5, 3]), torch.tensor([3, 5])
USAGES = (
    (FixedLength, ()),
    (PackedSorted, (SORTED_LENGTHS,)),
    (PackedUnsorted, (LENGTHS,)),
    (FinalStateOnly, (SORTED_LENGTHS,)),
    (PackedReturned, (LENGTHS,)),
    (PackedConsumed, (LENGTHS,)),
)


def run_usages(backend: str) -> Iterator[tuple[str, str]]:
    """Run every usage on a backend; give its name, and what came of it.

    Raises
    ------
    AssertionError
        If a result differs from PyTorch's.
    """
    torch.manual_seed(0)
    lstm, x = torch.nn.LSTM(INPUTS, UNITS).eval(), torch.rand(STEPS, BATCH, INPUTS)
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder) / "lstm"
        generate_build(
            read_model(FixedLength(lstm)).network,
            build,
            settings=QuantizationSettings(weight_bits=16, data_bits=16),
            parameters=Parameters(lanes=4, macs=4, streams=BATCH),
            calibration=x.numpy(),
        )
        with Accelerator.open(build, backend=backend) as accelerator, torch.no_grad():
            device = LSTM(accelerator)
            for usage, lengths in USAGES:
                try:
                    network = read_model(usage(lstm)).network
                except ModelError as error:
                    yield usage.__name__, f"refused: {error}"
                    continue
                layer, alone = network.layers[0], read_model(lstm).network.layers[0]
                assert isinstance(layer, Lstm)
                assert isinstance(alone, Lstm)
                assert (layer.w_hh == alone.w_hh).all()
                expected, actual = usage(lstm)(x, *lengths), usage(device)(x, *lengths)
                for mine, theirs in zip(actual, expected, strict=True):
                    torch.testing.assert_close(mine, theirs, atol=2e-3, rtol=0)
                worst = max(float((a - b).abs().max()) for a, b in zip(actual, expected, strict=True))
                yield usage.__name__, f"largest difference from PyTorch {worst:.2g}"


if __name__ == "__main__":
    for name, outcome in run_usages(sys.argv[1] if len(sys.argv) > 1 else "golden"):
        print(f"{name}: {outcome}")
