"""The states of a prepared module: as its caller sees them, and as its layers keep them."""

from typing import Any

import torch

from rtlstm.sim.reference import FloatState
from rtlstm.spec.errors import InputError
from rtlstm.spec.fixed import Format
from rtlstm.train.layers import LayerStates, TorchLayers
from rtlstm.train.rounding import FLOAT32_BITS, round_to


class States:
    """Converts the states of layers.

    A caller has h of each recurrent layer, and c of LSTM layers. Layers keep h as the array reads it, and c.
    A GRU keeps its h with more bits, too, which the caller sees.

    Parameters
    ----------
    like
        A parameter of the module: states have its type, unless that does not hold them, and its device.
    """

    def __init__(self, layers: TorchLayers, like: Any) -> None:
        self._layers, self._like = layers, like
        shapes = layers.shapes
        self._stateful: list[Any] = [shape for shape in shapes if shape.has_state]
        self._lstms = [number for number, shape in enumerate(self._stateful) if shape.kind == "lstm"]
        numbers = {id(shape): number for number, shape in enumerate(self._stateful)}
        recurrent = [(index, shape) for index, shape in enumerate(shapes) if shape.recurrent]
        self._wide = [None if shape.kind == "lstm" else numbers.get(id(shape)) for _, shape in recurrent]
        """For each recurrent layer, the state that is its h with more bits, if any."""
        self._forms = [shapes[index + shape.feedback].output for index, shape in recurrent]
        """The format of each recurrent layer's h."""

    def begin(self, hx: Any, batch: int, single: bool) -> LayerStates:
        """Return the layers' states for those of the caller."""
        h, c = self._layers.zeros(batch, self._like)
        if hx is None:
            return h, c
        if self._lstms and (not isinstance(hx, tuple | list) or len(hx) != 2):
            raise InputError(f"hx must be a pair (h_0, c_0), not {type(hx).__name__}")
        given_h = self._split("h_0", hx[0] if self._lstms else hx, h, single)
        given_c = (
            self._split("c_0", hx[1], [c[number] for number in self._lstms], single) if self._lstms else []
        )
        for number, values in zip(self._lstms, given_c, strict=True):
            c[number] = values
        for number, (values, wide) in enumerate(zip(given_h, self._wide, strict=True)):
            h[number] = values
            if wide is not None:
                c[wide] = values
        return h, c

    def first(self, given: FloatState | None, batch: int) -> LayerStates:
        """Return the layers' states for those of calibration data; zeros if None."""
        hx: Any = given
        if given is not None:
            h, c = ([torch.from_numpy(values) for values in part] for part in given)
            hx = (h, c) if self._lstms else h
        return self.begin(hx, batch, single=False)

    def rounded(self, state: LayerStates) -> LayerStates:
        """Round states to the formats in which the layers keep them; what is a multiple already stays."""
        c = [
            round_to(values.double(), shape.state)
            for values, shape in zip(state[1], self._stateful, strict=True)
        ]
        h = [
            round_to(values.double() if wide is None else c[wide], form).to(self._like)
            for values, wide, form in zip(state[0], self._wide, self._forms, strict=True)
        ]
        return h, self._held(c)

    def _held(self, c: list[Any]) -> list[Any]:
        """Return kept states in the module's type, or in float64 if that type does not hold them."""

        def exact(form: Format) -> Any:
            return self._like.dtype if form.bits <= FLOAT32_BITS else torch.float64

        return [
            values.to(self._like.device, exact(shape.state))
            for values, shape in zip(c, self._stateful, strict=True)
        ]

    def end(self, state: LayerStates, single: bool) -> Any:
        """Return the final states as the caller sees them."""
        c = self._held(state[1])
        seen = [
            values.to(self._like) if wide is None else c[wide]
            for values, wide in zip(state[0], self._wide, strict=True)
        ]
        h = _joined(seen, single)
        return (h, _joined([c[number] for number in self._lstms], single)) if self._lstms else h

    @staticmethod
    def _split(name: str, part: Any, like: list[Any], single: bool) -> list[Any]:
        given = list(part) if isinstance(part, tuple | list) else [part]
        for values in given:
            if not isinstance(values, torch.Tensor) or not values.is_floating_point():
                kind = values.dtype if isinstance(values, torch.Tensor) else type(values).__name__
                raise InputError(f"{name} must be a tensor of floats, not {kind}")
            if not bool(torch.isfinite(values.detach()).all()):
                raise InputError(f"{name} must be finite numbers, but some are NaN or infinite")
        parts = list(part) if isinstance(part, tuple | list) or part.ndim > 1 + (not single) else [part]
        parts = [values[None] for values in parts] if single else parts
        found = [tuple(values.shape) for values in parts]
        wanted = [tuple(values.shape) for values in like]
        if found != wanted:
            raise InputError(f"{name} must have the shapes {wanted} layer by layer, not {found}")
        return [values.to(like[0].device) for values in parts]


def _joined(parts: list[Any], single: bool) -> Any:
    """One tensor ``(layers, N, H)``; a tuple of ``(N, H_l)`` where the layers differ in size."""
    mine = [values[0] for values in parts] if single else parts
    return torch.stack(mine) if len({values.shape for values in mine}) == 1 else tuple(mine)
