"""Finds options with which a network fits a device, if it does not fit as requested: fewer bits, direct
tables, another array."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from rtlstm.fpga.fit import Fit, FitRequest, fit_device
from rtlstm.gen.frontends.reading import InitialState
from rtlstm.gen.quantise.calibration import Calibration
from rtlstm.gen.quantise.quantiser import QuantizationSettings, choose_formats, quantise_with
from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.network import Network
from rtlstm.spec.numerics import QuantizedNetwork
from rtlstm.spec.options import option_text
from rtlstm.spec.parameters import Parameters
from rtlstm.spec.progress import Progress

__all__ = ["FitAdvice", "find_fit_advice", "refuse_fit_anyway"]

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
    settings: QuantizationSettings
    quantised: QuantizedNetwork
    parameters: Parameters
    fit: Fit
    """The design chosen with these options."""

    @property
    def text(self) -> str:
        """A clause for messages."""
        return f"{self._changes} it fits: {self._result}; `fit_anyway=True` builds it so"

    @property
    def taken(self) -> str:
        """A clause for messages, if the advice was taken."""
        return f"so it is built {self._changes}: {self._result}"

    @property
    def _changes(self) -> str:
        parts = [f"without {', '.join(f'`{name}`' for name in self.less)}"] if self.less else []
        parts += [f"with {option_text(self.more)}"] if self.more else []
        return " and ".join(parts)

    @property
    def _result(self) -> str:
        found, what = self.fit.estimate, "sequence" if self.quantised.passes else "step"
        return f"{found.cell_share:g} % of the logic cells, {found.step_latency_us:.4g} us a {what}"


def find_fit_advice(
    name: str,
    network: Network,
    settings: QuantizationSettings,
    data: Calibration | None,
    request: FitRequest,
    progress: Progress | None = None,
    initial_state: InitialState | None = None,
) -> FitAdvice | None:
    """Try the usual changes that make a network smaller; return the first with which it fits, or None.

    The array is chosen freely; formats only become narrower than in ``settings``.
    """
    less = request.given_sizes
    free = request.replace(**{name: FitRequest.model_fields[name].default for name in less})
    tried = list(_attempts(settings, bool(less)))
    searched: dict[object, float] = {}
    for number, (narrower, more) in enumerate(tried):
        if progress:
            progress("look for what fits", number, len(tried))
        try:
            choices = choose_formats(network, narrower, data, searched=searched, initial_state=initial_state)
            quantised = quantise_with(network, narrower, choices)
            asked = free.replace(tables=narrower.tables)
            parameters, fit = fit_device(name, quantised.shapes, quantised.numerics, asked, quantised.passes)
        except ConfigurationError:
            # Still nothing fits, or these formats are impossible for this network.
            continue
        return FitAdvice(more, less, narrower, quantised, parameters, fit)
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


def refuse_fit_anyway() -> NoReturn:
    """Refuse to change the formats of a network that is trained in them."""
    raise ConfigurationError(
        "`fit_anyway` changes formats, but the network is trained in those that were chosen: "
        "leave it out; where nothing fits, the message says with which formats to train"
    )
