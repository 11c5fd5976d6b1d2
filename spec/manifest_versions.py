"""Manifests of older schema versions: which mean the same today, and why others do not."""

import shlex
from collections.abc import Mapping
from typing import Any, Final

from rtlstm.spec.errors import ConfigurationError
from rtlstm.spec.options import option_text
from rtlstm.spec.parameters import Parameters

__all__ = ["MANIFEST_SCHEMA", "rebuild_command", "upgrade"]

MANIFEST_SCHEMA: Final = 6

_CHANGED: Mapping[int, str] = {
    2: "since version 2 a manifest lists the hashes of the files that simulators compile",
    3: "since version 3 a manifest has the graph of every cell",
    4: "since version 4 the argument of tanh(c) is rounded down: results differ in their last bits",
    5: "since version 5 what sigmoid and tanh read is rounded down: results differ in their last bits",
}
"""Why a manifest of an earlier version cannot become one of this version."""
_LOADABLE = "since version 6 loadable programs have more room for idle cycles, so that their images differ"


def upgrade(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an older manifest's fields in today's form: of the same hardware, with the same bits.

    Values that follow from others are not compared here; :meth:`rtlstm.spec.manifest.Manifest.parse` does.

    Raises
    ------
    ConfigurationError
        If it has no version, is of a later one, or means something else today: the message says what.
    """
    found = fields.get("schema_version")
    if type(found) is not int or found < 1:
        raise ConfigurationError("it is no manifest of rtlstm")
    if found > MANIFEST_SCHEMA:
        raise ConfigurationError("it was written by a later rtlstm, which reads it")
    changes = [why for version, why in _CHANGED.items() if found < version]
    if changes:
        # The last one says why the build cannot stay, whatever came before.
        raise ConfigurationError(changes[-1])
    parameters = fields.get("parameters")
    if found < 6 and isinstance(parameters, Mapping) and parameters.get("capacity") is not None:
        raise ConfigurationError(_LOADABLE)
    return {**fields, "schema_version": MANIFEST_SCHEMA}


def rebuild_command(fields: Mapping[str, Any], folder: object, model: str = "MODEL") -> str:
    """Return the command that makes a build of the same sizes and bits, as far as a manifest tells them."""
    chosen: dict[str, Any] = {"name": fields.get("name")}
    parameters, numerics = (_mapping(fields.get(name)) for name in ("parameters", "numerics"))
    names = ("family", "lanes", "macs", "gate_units", "streams", "tables")
    chosen |= {name: parameters.get(name) for name in names}
    for name in ("bus", "beat_in", "max_steps", "lut_lanes", "weight_memory", "table_memory"):
        if parameters.get(name) != Parameters.model_fields[name].default:
            chosen[name] = parameters.get(name)
    if parameters.get("beat_out") != parameters.get("gate_units"):
        chosen["beat_out"] = parameters.get("beat_out")
    if in_luts := parameters.get("lut_macs"):
        chosen["multipliers"] = "lut" if in_luts == parameters.get("macs") else in_luts
    operations = _mapping(fields.get("program")).get("ops")
    if isinstance(operations, list) and any(_mapping(op).get("kept") for op in operations):
        chosen["skip_zeros"] = True
    chosen |= {name: numerics.get(name) for name in ("weight_bits", "hidden_rounding")}
    chosen["output_bits"] = numerics.get("own_output_bits")
    weight_bits = numerics.get("own_weight_bits")
    if isinstance(weight_bits, list | tuple) and len(weight_bits) == 2:
        chosen["weight_bits"], chosen["dense_weight_bits"] = weight_bits
    chosen |= {
        f"{name}_bits": _mapping(numerics.get(part)).get("bits")
        for name, part in (("data", "input"), ("gate", "gate"), ("cell", "cell"))
    }
    if parameters.get("capacity") is not None:
        chosen["capacities"] = True
    given = {name: value for name, value in chosen.items() if isinstance(value, int | str)}
    paths = f"{shlex.quote(model)} -o {shlex.quote(str(folder))}"
    return f"rtlstm generate {paths} {option_text(given)}".rstrip()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
