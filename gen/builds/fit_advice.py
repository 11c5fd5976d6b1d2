"""Finds options with which a network fits a device, if it does not fit as requested: fewer bits, direct
tables, another array."""

from collections.abc import Iterator
from dataclasses import dataclass

from rtlstm.fpga.fit import Fit, FitRequest, fit_device
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import QuantizationSettings, quantise
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.network import Network
from rtlstm.spec.options import option, options
from rtlstm.spec.progress import Progress

__all__ = ["FitAdvice", "find_fit_advice"]

_Fields = dict[str, int | str]
_DIRECT: _Fields = {"tables": "direct"}
_EIGHT: _Fields = {"weight_bits": 8, "data_bits": 8}
_NARROW: _Fields = _EIGHT | {"gate_bits": 8, "cell_bits": 12}
_LAST: _Fields = {"weight_bits": 4, "data_bits": 6, "gate_bits": 6, "cell_bits": 10}

_TRIED: tuple[_Fields, ...] = (
    {},
    _DIRECT,
    _EIGHT,
    _EIGHT | _DIRECT,
    _NARROW,
    _NARROW | _DIRECT,
    _NARROW | _DIRECT | {"weight_bits": 6},
    _NARROW | _DIRECT | {"weight_bits": 4},
    _NARROW | _DIRECT | {"weight_bits": 6, "data_bits": 6, "gate_bits": 6},
    _LAST | _DIRECT,
)
"""Formats and kinds of tables, roughly in the order of the accuracy that they cost."""


@dataclass(frozen=True)
class FitAdvice:
    """Options with which a network fits a device."""

    more: _Fields
    """Options to give or change."""
    less: tuple[str, ...]
    """Options to leave out."""
    fit: Fit
    """The design chosen with these options."""
    sequences: bool
    """Whether its latency is that of a whole sequence."""

    @property
    def text(self) -> str:
        """A clause for messages."""
        parts = [f"without {', '.join(map(option, self.less))}"] if self.less else []
        parts += [f"with {options(self.more)}"] if self.more else []
        found = self.fit.estimate
        return (
            f"{' and '.join(parts)} it fits: {found.cell_share:g} % of the logic cells, "
            f"{found.step_latency_us:.4g} us a {'sequence' if self.sequences else 'step'}"
        )


def find_fit_advice(
    name: str,
    network: Network,
    settings: QuantizationSettings,
    data: Calibration | None,
    request: FitRequest,
    progress: Progress | None = None,
) -> FitAdvice | None:
    """Try the usual changes that make a network smaller; return the first with which it fits, or None.

    The array is chosen freely; formats only become narrower than in ``settings``.
    """
    less = request.given_sizes
    free = request.replace(**{name: FitRequest.model_fields[name].default for name in less})
    tried = list(_attempts(settings, bool(less)))
    for number, (narrower, more) in enumerate(tried):
        if progress:
            progress("look for what fits", number, len(tried))
        try:
            quantised = quantise(network, narrower, data)
            asked = free.replace(tables=narrower.tables)
            _, fit = fit_device(name, quantised.shapes, quantised.numerics, asked, quantised.passes)
        except ConfigurationError:
            # Still nothing fits, or these formats are impossible for this network.
            continue
        return FitAdvice(more, less, fit, bool(quantised.passes))
    return None


def _attempts(settings: QuantizationSettings, as_is: bool) -> Iterator[tuple[QuantizationSettings, _Fields]]:
    """Yield different settings to try, and the changes in them.

    ``as_is`` says that the settings themselves are tried, too.
    """
    seen = [] if as_is else [settings]
    for fields in _TRIED:
        changes = {name: value for name, value in fields.items() if _is_narrower(settings, name, value)}
        try:
            narrower = settings.replace(**changes)
        except ConfigurationError:
            continue
        if narrower not in seen:
            seen.append(narrower)
            yield narrower, changes


def _is_narrower(settings: QuantizationSettings, name: str, value: int | str) -> bool:
    now = getattr(settings, name)
    if isinstance(value, str):
        return bool(now != value)
    return now is None or value < now
