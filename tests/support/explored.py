"""Points of an exploration that no tool has found."""

from rtlstm.explore.space import Choice, Errors, Point


def point(latency: float, luts: int, error: float, device: str = "up5k") -> Point:
    choice = Choice(
        device=device,
        tables="direct",
        weight_bits=8,
        data_bits=8,
        gate_bits=8,
        cell_bits=12,
        hidden_rounding="half_up",
        lanes=luts,
        macs=1,
    )
    return Point(
        choice=choice,
        lanes=4,
        macs=1,
        gate_units=1,
        pipeline="default",
        table_memory="ram",
        step_latency_cycles=10,
        step_interval_cycles=10,
        latency_us=latency,
        interval_us=latency,
        fmax_mhz=50.0,
        luts=luts,
        ffs=1,
        multipliers=1,
        block_rams=1,
        large_rams=0,
        energy_nj=None,
        share=luts / 10,
        limited_by="LUTs",
        errors=Errors(rms=error, largest=2 * error),
    )
