"""What an exploration measures outputs by."""

import hashlib
import importlib
import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtlstm.explore.records import Errors, Point
from rtlstm.gen.accuracy.samples import Labels, Samples
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.spec.errors import ConfigurationError, InputError

__all__ = ["BUILT_IN", "Evaluation", "Metric", "find_metric"]

Floats = NDArray[np.float64]

_MEANINGS = {
    "error": "root mean square of the differences from the float outputs",
    "max-error": "largest difference from a float output",
    "agreement": "share of decisions that are those of the float network",
    "accuracy": "share of right decisions",
    "mean-absolute-error": "mean difference from the labels",
}
BUILT_IN = tuple(_MEANINGS)
_LABELLED = {"accuracy": "integers, which are classes", "mean-absolute-error": "floats, which are targets"}


@dataclass(frozen=True)
class Evaluation:
    """The data that outputs are measured on."""

    samples: Samples
    inputs: Calibration
    """The samples with the state in which each sequence begins."""
    exact: Floats
    """The float network's outputs, ``(T, N, outputs)``."""
    threshold: float
    """A single output above it means class 1."""
    labels: Labels | None = None
    given: Any = None
    """The labels as they are in the file."""

    def decisions(self, outputs: Floats) -> NDArray[Any]:
        """Return the class of each valid step: the largest output, or if one alone is above the threshold."""
        some = outputs[self.samples.alive]
        return some[:, 0] > self.threshold if some.shape[1] == 1 else some.argmax(axis=1)


@dataclass(frozen=True)
class Metric:
    """A measure of outputs; make it with :func:`find_metric`."""

    name: str
    function: Callable[..., Any] | None = None
    """The user's, of outputs ``(T, N, outputs)`` and labels; its number is better if it is smaller.

    The outputs of inputs whose first axis is the batch are ``(N, T, outputs)``, as their labels are.
    """
    source: str = ""
    """A hash of the file of the user's module, not of what that imports; empty without a file."""

    @property
    def short_name(self) -> str:
        """Its name in limits and tables."""
        return self.name.rpartition(":")[2]

    @property
    def meaning(self) -> str:
        """What its values are, a clause for tables."""
        return _MEANINGS.get(self.name, "better if smaller")

    @property
    def is_share(self) -> bool:
        """Whether it is a share, of steps or decisions."""
        return self.name in ("agreement", "accuracy")

    @property
    def larger_is_better(self) -> bool:
        """Whether a larger value is better."""
        return self.is_share

    def value_of(self, point: Point) -> float:
        """Return its value for a point."""
        return self.of(point.errors)

    def of(self, errors: Errors) -> float:
        """Return its value."""
        if self.name == "max-error":
            return errors.largest
        return errors.rms if errors.metric is None else errors.metric

    def cost(self, errors: Errors) -> float:
        """Return its value, negative if a larger one is better."""
        return -self.of(errors) if self.larger_is_better else self.of(errors)

    def check(self, data: Evaluation) -> None:
        """Refuse data whose labels it cannot use; InputError says which it needs."""
        kind, labels = _LABELLED.get(self.name), data.labels
        if kind is None:
            return
        if labels is None or labels.classes != (self.name == "accuracy"):
            given = "there are none" if labels is None else "those given are the other kind"
            raise InputError(
                f"the metric {self.name} needs labels that are {kind}, but {given}; give them as array y "
                "beside inputs x in the .npz file of `evaluation`"
            )

    def measure(self, fixed: Floats, data: Evaluation) -> float | None:
        """Measure fixed outputs, ``(T, N, outputs)``; None if :class:`Errors` has it already."""
        if self.function is not None:
            return self._call(data.samples.as_given(fixed), data.given)
        if self.name in _LABELLED and data.labels is not None:
            return data.labels.score(data.exact, fixed).fixed_score
        if self.name == "agreement":
            return float(np.mean(data.decisions(data.exact) == data.decisions(fixed)))
        return None

    def measure_float(self, data: Evaluation) -> float | None:
        """Measure the float network's outputs; None if the metric compares with them, or has no value there.

        A user's ratio to the error, for example, has none where the error is 0.
        """
        if self.name in _MEANINGS and self.name not in _LABELLED:
            return None
        try:
            # The function may change what it is given.
            return self.measure(data.exact.copy(), data)
        except InputError:
            return None

    def _call(self, outputs: Floats, given: Any) -> float:
        assert self.function is not None
        # The function may change what it is given.
        shape = outputs.shape
        labels = "no labels" if given is None else f"labels {np.shape(given)}"
        try:
            value = float(self.function(outputs, given))
        except Exception as error:
            raise InputError(
                f"the metric {self.name} failed on outputs {shape} and {labels}: "
                f"{type(error).__name__}: {error}"
            ) from None
        if not math.isfinite(value):
            raise InputError(f"the metric {self.name} must give a finite number, not {value}")
        return value


def find_metric(name: str) -> Metric:
    """Find a metric: one of :data:`BUILT_IN`, or ``module:function``.

    A module is also looked for in the current folder.

    Raises
    ------
    ConfigurationError
        If there is none of this name.
    """
    if name in BUILT_IN:
        return Metric(name)
    module, colon, function = name.partition(":")
    if not colon or not module or not function:
        raise ConfigurationError(
            f"a metric must be one of {', '.join(BUILT_IN)}, or your own as module:function, not {name!r}"
        )
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        holder = importlib.import_module(module)
        found = getattr(holder, function)
    except Exception as error:
        # The module is the user's, so that it may raise anything.
        raise ConfigurationError(
            f"the metric {name} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    finally:
        sys.path.remove(here)
    if not callable(found):
        raise ConfigurationError(f"the metric {name} must be a function of outputs and labels, not {found!r}")
    with suppress(ImportError):
        # Workers elsewhere need not have the module.
        import cloudpickle

        cloudpickle.register_pickle_by_value(holder)
    return Metric(name, found, _source(holder))


def _source(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""
