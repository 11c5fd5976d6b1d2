"""What a build takes of a device, as bars."""

from collections.abc import Sequence

from rtlstm.fpga.devices import find_device
from rtlstm.fpga.estimate import Estimate
from rtlstm.fpga.implementation import Implementation, ResourceUse
from rtlstm.fpga.resources import count_text, percent, resource_uses
from rtlstm.gen.pictures.picture import NARROW, NO_AXIS, Picture, colour
from rtlstm.spec.record import Record

__all__ = ["DeviceUse", "draw_use", "expected_use", "measured_uses"]


class DeviceUse(Record):
    """What a build takes of a device, and how fast it is there."""

    device: str
    about: str
    """Where the figures come from, and the time of a step if it is known."""
    resources: tuple[ResourceUse, ...]


def expected_use(estimates: Sequence[Estimate], chosen: Estimate | None = None) -> DeviceUse | None:
    """Return the estimate for the ``chosen`` device; else for the smallest one that the core fits.

    None without estimates; of the largest device if it fits none.
    """
    if chosen is None:
        by_size = sorted(estimates, key=lambda one: find_device(one.device).device.luts)
        chosen = next((one for one in by_size if one.fits), by_size[-1] if by_size else None)
    if chosen is None:
        return None
    device = find_device(chosen.device).device
    # The wrapper's memories are the device's, too.
    whole = chosen.model_copy(update={"block_rams": chosen.block_rams + chosen.wrapper_block_rams})
    uses = [
        ResourceUse(name=name, used=used, available=there)
        for name, used, there in resource_uses(whole, device)
        if used or there
    ]
    if chosen.chain_tiles is not None and device.chain_tiles is not None:
        there = device.chain_tiles
        uses.append(ResourceUse(name="tiles for carry chains", used=chosen.chain_tiles, available=there))
    board = f"with the link of {chosen.board}, " if chosen.board else ""
    fits = "" if chosen.fits else "; it does not fit"
    return DeviceUse(
        device=chosen.device,
        about=f"estimated before synthesis, {board}{chosen.step_latency_us:.5g} \u00b5s a step at "
        f"{chosen.clock_mhz:.5g} MHz{fits}",
        resources=tuple(uses),
    )


def measured_uses(found: Sequence[Implementation]) -> tuple[DeviceUse, ...]:
    """Return what was synthesised; first what was routed, the fastest first."""
    routed = sorted(
        (run for run in found if run.step_latency_us is not None), key=lambda run: run.step_latency_us or 0
    )
    others = [run for run in found if run.step_latency_us is None]
    return tuple(
        DeviceUse(
            device=run.label,
            about="synthesised"
            if run.step_latency_us is None
            else f"placed and routed, {run.step_latency_us:.5g} \u00b5s a step at "
            f"{run.fmax_median_mhz:.5g} MHz (median seed)",
            resources=tuple(use for use in run.resources if use.used or use.available),
        )
        for run in (*routed, *others)
    )


def draw_use(use: DeviceUse) -> Picture:
    """Draw a bar for each resource; a full bar is all that the device has."""
    rows = []
    for row, each in enumerate(use.resources):
        fits = each.used <= each.available
        figure = f"{count_text(each.used)} of {each.available:,}"
        if each.available:
            figure += f", {percent(each.used, each.available):g} %"
        rows.append(
            {
                "row": row,
                "name": each.name,
                "share": min(1.0, each.used / each.available) if each.available else 1.0,
                "figure": figure,
                "about": f"{each.name}: {figure}",
                "colour": colour("array" if fits else "overhead"),
            }
        )
    y = {"field": "row", "type": "ordinal", **NO_AXIS}
    share = {"field": "share", "type": "quantitative", "scale": {"domain": [0, 1]}, **NO_AXIS}
    # Texts stand above their bars.
    bar = {"type": "bar", "height": 14, "yOffset": 7}
    text = {"type": "text", "baseline": "bottom", "dy": -3, "fontSize": 12}
    chart = {
        "width": NARROW - 10,
        "height": {"step": 38},
        "data": {"values": rows},
        "layer": [
            {
                "mark": {**bar, "color": colour("line"), "aria": False},
                "encoding": {"y": y, "x": {"datum": 1, "type": "quantitative", **NO_AXIS}},
            },
            {
                "mark": bar,
                "encoding": {
                    "y": y,
                    "x": share,
                    "color": {"field": "colour", "scale": None},
                    "description": {"field": "about"},
                },
            },
            {
                "mark": {**text, "align": "left", "fill": colour("ink"), "limit": NARROW - 180},
                "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "name"}},
            },
            {
                "mark": {**text, "align": "right"},
                "encoding": {"y": y, "x": {"value": NARROW - 10}, "text": {"field": "figure"}},
            },
        ],
    }
    return Picture(f"Share of {use.device}", chart, wide=False)
