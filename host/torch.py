"""Replaces ``torch.nn.LSTM``, ``GRU`` or ``RNN`` with a build; needs the extra ``torch``.

>>> model.lstm = rtlstm.host.torch.LSTM(accelerator)

The call has PyTorch's form: padded tensors or a PackedSequence, with or without a state. The result has the
same form.
"""

from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn.utils import rnn

from rtlstm.host.accelerator import Accelerator
from rtlstm.spec.errors import ConfigurationError, InputError


class _Recurrent(torch.nn.Module):
    """The network of an accelerator, called as PyTorch's recurrent modules are.

    Parameters
    ----------
    accelerator
        Open on any backend. The caller must close it.
    batch_first
        Whether padded inputs and outputs are ``(N, T, features)`` instead of ``(T, N, features)``; by default
        as in the model that the build was made from.

    Raises
    ------
    ConfigurationError
        If the build's recurrent layers are of another kind, or its outputs are final states.
    """

    KIND: ClassVar[str]

    def __init__(self, accelerator: Accelerator, batch_first: bool | None = None) -> None:
        super().__init__()
        layers = accelerator.manifest.layers
        if accelerator.manifest.decides:
            raise ConfigurationError(
                f"{type(self).__name__} needs a build that gives outputs, but {accelerator.manifest.name!r} "
                "gives the number of the largest one; generate it without `decide`"
            )
        kinds = {layer.kind.partition("_")[0] for layer in layers if not layer.dense}
        if kinds != {self.KIND}:
            raise ConfigurationError(
                f"{type(self).__name__} needs a build whose recurrent layers are all of kind {self.KIND}, "
                f"but {accelerator.manifest.name!r} has {', '.join(sorted(kinds))}"
            )
        ends = accelerator.manifest.passes[-1:]
        if any(part.reversed_output for parts in ends for part in parts):
            raise ConfigurationError(
                f"{type(self).__name__} needs a build that gives outputs where their inputs stand, but "
                f"{accelerator.manifest.name!r} gives those of a direction in reverse reversed, for a "
                "model that ends with final states; generate it with the recurrent layers' outputs at its end"
            )
        self.accelerator = accelerator
        self.batch_first = accelerator.manifest.batch_first if batch_first is None else batch_first
        self.input_size = accelerator.manifest.program.inputs // accelerator.manifest.frames

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """Run sequences from zero state, or from ``hx``; no gradients.

        Parameters
        ----------
        input
            Floats, ``(T, N, I)``, ``(N, T, I)`` with ``batch_first``, ``(T, I)`` for one sequence; or a
            PackedSequence, whose sequences may be sorted or not.
        hx
            ``(h_0, c_0)`` of an LSTM, ``h_0`` of others, in PyTorch's shapes and in the order of the batch.

        Returns
        -------
        Outputs in the form of ``input``, and the final state in the form of ``hx``; in the type and on the
        device of ``input``.

        Raises
        ------
        InputError
            If shapes, types or values are wrong, or a sequence is longer than the build allows.
        DeviceError
            If the device fails.
        """
        if isinstance(input, rnn.PackedSequence):
            return self._run_packed(input, hx)
        _check_floats("input", input)
        y, state = self._run(input, None, hx, self.batch_first)
        return y.to(input), self._give(state, input)

    def flatten_parameters(self) -> None:
        """Do nothing; the weights are in the device."""

    def _run(self, x: Any, lengths: Any, hx: Any, batch_first: bool | None) -> tuple[Any, Any]:
        y, state = self.accelerator.run(
            _to_numpy(x), lengths=lengths, state=self._take(hx), batch_first=batch_first
        )
        return torch.from_numpy(np.ascontiguousarray(y)), state

    def _run_packed(self, packed: Any, hx: Any) -> tuple[Any, Any]:
        """Pad, run, and pack the outputs as the inputs were."""
        _check_floats("input", packed.data)
        padded, lengths = rnn.pad_packed_sequence(packed)  # in the order of the batch
        y, state = self._run(padded, lengths.numpy(), hx, batch_first=False)
        if packed.sorted_indices is not None:
            order = packed.sorted_indices.cpu()
            y, lengths = y.index_select(1, order), lengths[order]
        data = rnn.pack_padded_sequence(y, lengths).data.to(packed.data)
        outputs = rnn.PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        return outputs, self._give(state, packed.data)

    def _take(self, hx: Any) -> Any:
        """Convert PyTorch's state to the driver's."""
        if hx is None:
            return None
        _check_floats("hx", hx)
        return _to_numpy(hx), ()

    def _give(self, state: Any, like: Any) -> Any:
        """Convert the driver's state to PyTorch's."""
        return _to_tensor(state[0], like)


class GRU(_Recurrent):
    """Replaces ``torch.nn.GRU`` with a build; see :class:`LSTM`."""

    KIND = "gru"


class RNN(_Recurrent):
    """Replaces ``torch.nn.RNN`` with a build; see :class:`LSTM`."""

    KIND = "rnn"


class LSTM(_Recurrent):
    """Replaces ``torch.nn.LSTM`` with a build, whose output is that of the dense layers after it, if any."""

    KIND = "lstm"

    def _take(self, hx: Any) -> Any:
        if hx is None:
            return None
        if not isinstance(hx, tuple | list) or len(hx) != 2:
            raise InputError(f"hx must be a pair (h_0, c_0), not {type(hx).__name__}")
        for name, part in zip(("h_0", "c_0"), hx, strict=True):
            _check_floats(name, part)
        return _to_numpy(hx[0]), _to_numpy(hx[1])

    def _give(self, state: Any, like: Any) -> Any:
        return _to_tensor(state[0], like), _to_tensor(state[1], like)


def _check_floats(name: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        given = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise InputError(f"{name} must be a tensor of floats, as for the modules of torch.nn, not {given}")


def _to_numpy(tensor: Any) -> Any:
    return tensor.detach().to("cpu", torch.float64).numpy()


def _to_tensor(values: Any, like: Any) -> Any:
    """One tensor ``(layers, N, H)``; a tuple of ``(N, H_l)`` where the layers differ in size."""
    if isinstance(values, tuple):
        return tuple(_to_tensor(part, like) for part in values)
    return torch.from_numpy(np.ascontiguousarray(values)).to(like)
