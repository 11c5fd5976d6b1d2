"""What people read of the results of ``rtlstm explore``."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtlstm.cli.results import Field, Found, Table, Text
from rtlstm.spec.errors import ConfigurationError

if TYPE_CHECKING:
    from rtlstm.explore.metrics import Metric
    from rtlstm.explore.records import Exploration, Point

__all__ = ["COMMAND", "FRONT", "find_build", "front_fields"]

_ROWS = 16
"""Points that the table shows, shared among the devices."""
_LEGEND = (
    "bits: of weights, data, gates and c; full: the share of the fuller of logic and memory, of what --fit "
    "may use"
)
_HINT = "The same command with --show N prints the command that builds N; explore.json has all of them."


def front_fields(
    found: "Exploration",
    folder: Path,
    metric: "Metric",
    command: Callable[[int, Mapping[str, Any]], str],
) -> dict[str, Any]:
    """The JSON object: what was found, each point with its number and its command."""
    front = [
        _point(number, point, metric, command(number, point.choice.options))
        for number, point in enumerate(found.front, 1)
    ]
    return found.model_dump(mode="json") | {
        "folder": str(folder),
        "page": str(folder / "explore.html") if front else None,
        "points_per_hour": found.points_per_hour and round(found.points_per_hour),
        "front": front,
    }


def find_build(front: Sequence[Found], number: int) -> Found:
    """Return the point of a number; the JSON object of ``--show``.

    Raises
    ------
    ConfigurationError
        If the front has none.
    """
    if number > len(front):
        raise ConfigurationError(f"`show` must be the number of a build, 1 to {len(front)}, not {number}")
    return front[number - 1]


def _point(number: int, point: "Point", metric: "Metric", command: str) -> dict[str, Any]:
    """A point as the table and the page show it."""
    fields: dict[str, Any] = point.model_dump(mode="json")
    choice, proof = fields["choice"], fields["proof"]
    numbers = "/".join(str(choice[f"{kind}_bits"]) for kind in ("weight", "data", "gate", "cell"))
    return fields | {
        "number": number,
        "device": choice["device"],
        "numbers": f"{numbers} {choice['tables']}" + (" odd" if choice["hidden_rounding"] == "odd" else ""),
        "array": f"{fields['lanes']} x {fields['macs']}",
        "cycles": fields["step_latency_cycles"],
        "measure": metric.of(point.errors),
        # Not twice, if it is the metric.
        "error": None if metric.name == "error" else point.errors.rms,
        "command": command,
        "proof": _proof_text(proof),
        "proven": proof,
    }


def _proof_text(proof: Mapping[str, Any] | None) -> str:
    if proof is None:
        return ""
    if not proof["passed"]:
        return "DIFFERS"
    if proof["fmax_mhz"] is None:
        return "simulated, does not fit" if proof["refusal"] else "simulated"
    return f"{proof['step_latency_us']:.4g} us routed"


def _summary(found: Found) -> str:
    """Say how many choices were tried, and what became of them."""
    parts = f"{found['too_large']} do not fit their device"
    if found["impossible"]:
        parts += f", the bits of {found['impossible']} cannot be built"
    rate = found["points_per_hour"]
    speed = f" {found['new']} were new; that is {rate:,} an hour with {found['workers']}." if rate else ""
    within = f" {found['within']} meet the limits." if found["limits"] else ""
    return f"{found['tried']:,} of {found['size']:,} choices tried: {parts}.{within}{speed}"


def _rows(found: Found) -> list[Found]:
    """The points to show: the best of each device in turn."""
    front, counts = found["front"], Counter[str]()
    turns = []
    for point in front:
        counts[point["device"]] += 1
        turns.append((counts[point["device"]], point["number"]))
    chosen = {number for _, number in sorted(turns)[: max(_ROWS, len(counts))]}
    return [point for point in front if point["number"] in chosen]


def _title(found: Found) -> str:
    front, rows = found["front"], _rows(found)
    some = f"{len(rows)} of {len(front)} builds" if len(rows) < len(front) else f"All {len(front)} builds"
    if len(front) == 1:
        some = "The build"
    return f"{some} that no other on their device beats, by {found['goal']} (estimated before synthesis)"


def _metric(found: Found) -> str | None:
    """Say what the metric is, and how good the front's best build is."""
    front, in_float = found["front"], found["float_metric"]
    if not front:
        return None
    best = (max if found["larger_is_better"] else min)(front, key=lambda point: point["measure"])
    floats = "" if in_float is None else f"; the float network has {in_float:.3g}"
    text = f"metric: {found['metric']}, {found['metric_meaning']}{floats}"
    if best["measure"] != front[0]["measure"]:
        text += f"; the best is {best['measure']:.3g}, of build {best['number']}"
        if not found["limits"]:
            sign = ">" if found["larger_is_better"] else "<"
            text += f"; --limit 'metric{sign}=NUMBER' leaves out what is worse"
    return text


def _without_build(found: Found) -> str | None:
    """Name the devices that have no build, or none within the limits, if others have one."""
    if found["tried"] == found["too_large"] + found["impossible"]:
        return None
    lines = [
        f"none of the choices tried for {device} is a build; at best: {why}"
        for device, why in found["without_build"].items()
    ]
    lines += [
        f"{device} is left out by {' and by '.join(why)}" for device, why in found["beyond_limits"].items()
    ]
    return "\n".join(lines) or None


def _energy(point: Found) -> str | None:
    return None if point["energy_nj"] is None else f"{point['energy_nj']:.4g}"


def _error(point: Found) -> str | None:
    return None if point["error"] is None else f"{point['error']:.3g}"


COMMAND = (Text("{command}"),)

FRONT = (
    Table(
        _title,
        _rows,
        (
            Field("#", "{number}", right=True),
            Field("device", "{device}"),
            Field("bits", "{numbers}"),
            Field("array", "{array}", right=True),
            Field("cycles", "{cycles:,}", right=True),
            Field("us", "{latency_us:.4g}", right=True),
            Field("LUTs", "{luts:,}", right=True),
            Field("mult.", "{multipliers}", right=True),
            Field("RAMs", "{block_rams}", right=True),
            Field("full", "{share:g} %", right=True),
            Field("nJ", _energy, right=True),
            Field("error", _error, right=True),
            Field("metric", "{measure:.4g}", right=True),
            Field("proof", "{proof}"),
        ),
    ),
    Text(lambda found: _LEGEND if found["front"] else None),
    Text(_metric),
    Text(_summary),
    Text(_without_build),
    Text(lambda found: "\n".join(f"no build meets {text}" for text in found["ruled_out"]) or None),
    Text(lambda found: _HINT if len(found["front"]) > 1 else None),
    Text(lambda found: found["page"] and f"written: {found['page']}"),
)
