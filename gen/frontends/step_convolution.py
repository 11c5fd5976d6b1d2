"""Convolutions over the frames inside one step, as dense layers with structural zeros."""

import numpy as np
from numpy.typing import ArrayLike

from rtlstm.gen.frontends.arrays import to_float64
from rtlstm.spec.budget import check_size
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Activation, Dense


def convolve_step(
    name: str,
    weight: ArrayLike,
    bias: ArrayLike,
    frames: int,
    *,
    stride: int = 1,
    padding: int = 0,
    activation: Activation = "identity",
) -> Dense:
    """Return a convolution over the ``frames`` of a step, with zeros around them, as a dense layer.

    The layer reads the frames side by side, the oldest first, and gives its own frames so,
    ``(frames + 2 * padding - taps) // stride + 1`` of them. A weight stands once for each frame that it
    computes. What does not reach a frame is zero: with ``skip_zeros`` most of it is neither stored nor
    multiplied.

    Parameters
    ----------
    weight
        ``(outputs, inputs, taps)``, as PyTorch and ONNX have it.
    bias
        ``(outputs,)``.

    Raises
    ------
    ModelError
        If the weights have other shapes, or the convolution gives no frame.
    """
    taps, offset = (
        to_float64(np.asarray(weight), f"{name}: weight"),
        to_float64(np.asarray(bias), f"{name}: bias"),
    )
    if taps.ndim != 3 or offset.shape != taps.shape[:1]:
        raise ModelError(
            f"{name}: weight and bias must be (outputs, inputs, taps) and (outputs,), not {taps.shape} and "
            f"{offset.shape}"
        )
    outputs, inputs, count = taps.shape
    given = (frames + 2 * padding - count) // stride + 1 if min(frames, stride) > 0 <= padding else 0
    if given < 1:
        raise ModelError(
            f"{name} must give a frame, but {frames} frames, {count} taps, padding {padding} and stride "
            f"{stride} make none"
        )
    check_size((given * outputs, frames * inputs), f"{name}: its weights with zeros between")
    wide = np.zeros((given, outputs, frames, inputs))
    for frame in range(given):
        for tap in range(count):
            source = frame * stride - padding + tap
            if 0 <= source < frames:
                wide[frame, :, source] = taps[:, :, tap]
    return Dense(
        name=name,
        weight=wide.reshape(given * outputs, frames * inputs),
        bias=np.tile(offset, given),
        activation=activation,
    )
