"""Replaces ``torch.nn.LSTM``, ``GRU`` or ``RNN`` with a build; needs the extra ``torch``.

>>> model.lstm = rtlstm.host.torch.LSTM(accelerator)

The call has PyTorch's form: padded tensors or a PackedSequence, with or without a state. The result has the
same form. :func:`attach` makes the build, too, and puts it in the place of a part of a module.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn.utils import rnn

from rtlstm.host.accelerator import Accelerator
from rtlstm.spec.errors import ConfigurationError, DeviceError, InputError, ModelError, RtlstmError


@dataclass(frozen=True, eq=False)
class Form:
    """The form of what a recurrent module reads: tensors, or PackedSequences.

    ``like`` is an empty tensor of the type and on the device of the input. ``packed`` is a PackedSequence
    without its data and ``lengths`` its lengths, ``(N,)`` in the order of the batch; both are None without
    one.
    """

    like: Any
    packed: Any = None
    lengths: Any = None

    @classmethod
    def of(cls, input: Any) -> "tuple[Any, Form]":
        """Return an input as a tensor, ``(T, N, I)`` if it was packed, and its form.

        Raises InputError if it holds no floats.
        """
        packed = input if isinstance(input, rnn.PackedSequence) else None
        data = input if packed is None else packed.data
        _check_floats("input", data)
        like = data.detach().new_empty(0)
        if packed is None:
            return input, cls(like)
        padded, lengths = rnn.pad_packed_sequence(packed)
        return padded, cls(like, rnn.PackedSequence(like, *packed[1:]), lengths.numpy())

    def give(self, y: Any) -> Any:
        """Return outputs in this form; of packed sequences they are ``(T, N, O)``."""
        if self.packed is None:
            return y.to(self.like)
        lengths = torch.from_numpy(self.lengths)
        if self.packed.sorted_indices is not None:
            order = self.packed.sorted_indices.cpu()
            y, lengths = y.index_select(1, order), lengths[order]
        data = rnn.pack_padded_sequence(y, lengths).data.to(self.like)
        return rnn.PackedSequence(data, *self.packed[1:])


class _Recurrent(torch.nn.Module):
    """The network of an accelerator, called as PyTorch's recurrent modules are.

    ``accelerator`` is open on any backend; the caller must close it. ``batch_first`` says whether padded
    inputs and outputs are ``(N, T, features)`` instead of ``(T, N, features)``; by default as in the model
    that the build was made from. Raises ConfigurationError if the build's recurrent layers are of another
    kind, or its outputs are final states.
    """

    KIND: ClassVar[str]

    def __init__(self, accelerator: Accelerator, batch_first: bool | None = None) -> None:
        super().__init__()
        layers = accelerator.manifest.layers
        if accelerator.manifest.decides:
            raise ConfigurationError(
                f"{type(self).__name__} needs a build that gives outputs, but {accelerator.device.label} "
                "gives their softmax or which is the largest; generate it without `decide`"
            )
        kinds = {layer.kind.partition("_")[0] for layer in layers if not layer.dense}
        if kinds != {self.KIND}:
            raise ConfigurationError(
                f"{type(self).__name__} needs a build whose recurrent layers are all of kind {self.KIND}, "
                f"but {accelerator.device.label} has {', '.join(sorted(kinds))}"
            )
        ends = accelerator.manifest.passes[-1:]
        if any(part.reversed_output for parts in ends for part in parts):
            raise ConfigurationError(
                f"{type(self).__name__} needs a build that gives outputs where their inputs stand, but "
                f"{accelerator.device.label} gives those of a direction in reverse reversed, for a "
                "model that ends with final states; generate it with the recurrent layers' outputs at its end"
            )
        self.accelerator = accelerator
        self.batch_first = accelerator.manifest.batch_first if batch_first is None else batch_first
        self.input_size = accelerator.manifest.step_width

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
        x, form = Form.of(input)
        y, state = self.accelerator.run(
            _to_numpy(x),
            lengths=form.lengths,
            state=self._take(hx),
            batch_first=self.batch_first if form.lengths is None else False,
        )
        return form.give(torch.from_numpy(np.ascontiguousarray(y))), self._give(state, form.like)

    def flatten_parameters(self) -> None:
        """Do nothing; the weights are in the device."""

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


# A part of a module, replaced


@contextmanager
def instead_of(part: torch.nn.Module, function: Callable[..., Any]) -> Iterator[None]:
    """Call a function in place of a module's ``forward``."""
    had, before = "forward" in vars(part), part.forward
    part.forward = function
    try:
        yield
    finally:
        if had:
            part.forward = before
        else:
            del part.forward


def run_model(model: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """Call a model without gradients. Raises InputError if it does not take these arguments."""
    try:
        with torch.no_grad():
            return model(*args, **kwargs)
    except RtlstmError:
        raise
    except Exception as error:  # A user's code may raise any error.
        line = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise InputError(
            f"x must be what {type(model).__name__} takes, but that refuses it: {line}"
        ) from error


def calls_of(
    model: torch.nn.Module, part: torch.nn.Module, args: Any, kwargs: Any
) -> list[tuple[Any, dict[str, Any]]]:
    """Run a model, and return the arguments of each call of one of its parts; errors of :func:`run_model`."""
    found: list[tuple[Any, dict[str, Any]]] = []
    forward = part.forward

    def call(*given: Any, **named: Any) -> Any:
        found.append((given, named))
        return forward(*given, **named)

    with instead_of(part, call):
        run_model(model, args, kwargs)
    return found


def as_calls(model: torch.nn.Module, x: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Return the calls of a model that ``x`` stands for, each as arguments.

    ``x`` is one input, a tuple of inputs, a dictionary of them by name, or a list of these for several calls.
    Arrays become tensors, floats of the model's type.
    """
    floats = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)

    def tensor(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        made = torch.from_numpy(np.ascontiguousarray(value))
        return made.to(floats) if made.is_floating_point() else made

    def call(value: Any) -> tuple[Any, dict[str, Any]]:
        if isinstance(value, dict):
            return (), {name: tensor(each) for name, each in value.items()}
        several = isinstance(value, tuple) and not isinstance(value, rnn.PackedSequence)
        return tuple(map(tensor, value if several else (value,))), {}

    if isinstance(x, list) and not x:
        raise InputError("x must have the inputs of at least one call, but is an empty list")
    return [call(each) for each in x] if isinstance(x, list) else [call(x)]


class Attached(torch.nn.Module):
    """A part of a module, as :func:`attach` put it there: its core runs on a build.

    Leaving its ``with`` block, or :meth:`detach`, puts the part back and closes the accelerator.
    """

    def __init__(self, model: torch.nn.Module, name: str, split: Any, backend: str) -> None:
        super().__init__()
        self.front, self.build, self.back = split
        self.accelerator: Accelerator | None = self.build.open(backend)
        self._undo = (model, name, model.get_submodule(name))
        _put(model, name, self)
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Take what the part takes, and give what it gives; without gradients.

        Raises
        ------
        DeviceError
            If the part was put back, or the device fails.
        """
        if self.accelerator is None:
            raise DeviceError(f"{self._undo[1]!r} was detached from its build; attach it again")
        core, past = self.front(*args, **kwargs)
        y, state = self.accelerator.run(**core)
        return self.back(y, state, past)

    def __getattr__(self, name: str) -> Any:
        """What the part has, such as its ``hidden_size``."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_undo" not in vars(self):
                raise
            return getattr(self._undo[2], name)

    def flatten_parameters(self) -> None:
        """Do nothing; the weights are in the device."""

    def detach(self) -> None:
        """Put the part back, and close the accelerator; again changes nothing."""
        accelerator, self.accelerator = self.accelerator, None
        if accelerator is not None:
            model, name, part = self._undo
            _put(model, name, part)
            accelerator.close()

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()


def check_detached(model: torch.nn.Module) -> None:
    """Raise a ModelError if a part of a model runs on a build: no model can be read of it."""
    for name, part in model.named_modules():
        if isinstance(part, Attached | _Recurrent):
            what = repr(name) if name else "the model"
            remedy = "call its detach()" if isinstance(part, Attached) else "put the trained module there"
            raise ModelError(f"a model must have its weights, but {what} runs on a build; {remedy} first")


def _put(model: torch.nn.Module, name: str, part: torch.nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    model.get_submodule(parent)._modules[last] = part


def attach(model: torch.nn.Module, name: str, x: Any, *, backend: str = "golden", **options: Any) -> Attached:
    """Replace a part of a module by one that runs on a build, and leave the rest as it is.

    Parameters
    ----------
    model
        In evaluation mode.
    name
        The part, as ``model.named_modules()`` has it: an LSTM, GRU or RNN, or a module with one in it. What
        the core cannot compute of it stays in PyTorch.
    x
        Typical inputs of the model: one, a tuple of them, a dictionary by name, or a list of these, one for
        each call. What the part gets of them determines the number formats.
    backend
        What the build runs on, as for :meth:`rtlstm.host.Accelerator.open`.
    options
        Those of :func:`rtlstm.compile` for the hardware and numbers, and ``folder``.

    Raises
    ------
    ConfigurationError
        If there is no such model or part, the model does not call it, or it is in training mode.
    InputError
        If the model does not take ``x``.
    ModelError
        If the core can compute nothing of the part.
    AbsentError
        If only the driver of rtlstm is installed, which makes no builds.
    """
    if not isinstance(model, torch.nn.Module) or not isinstance(name, str):
        raise ConfigurationError(
            f"attach takes a torch.nn.Module and the name of a part, not {type(model).__name__} and {name!r}"
        )
    parts = dict(model.named_modules())
    if not name or name not in parts:
        recurrent = [repr(key) for key, part in parts.items() if key and isinstance(part, torch.nn.RNNBase)]
        raise ConfigurationError(
            f"name must be that of a part of {type(model).__name__}, but there is no {name!r}; its recurrent "
            f"parts are {', '.join(recurrent) or 'none'}"
        )
    part = parts[name]
    calls = [each for args, kwargs in as_calls(model, x) for each in calls_of(model, part, args, kwargs)]
    if not calls:
        raise ConfigurationError(f"the model must call {name!r} to run it on a build, but did not for x")
    given: list[Any] = []
    for args, kwargs in calls:
        if args and kwargs:
            raise ConfigurationError(
                f"{name!r} must be called with arguments that are all given by position or all by name"
            )
        given.append(kwargs or args)
    # The driver must not need what makes builds.
    split = import_module("rtlstm").split
    return Attached(model, name, split(part, given, **options), backend)
