"""Reads memories of bytes as streams."""

from amaranth.hdl import Module, Signal, Value

from rtlstm.hdl.primitives.pipeline import ReadPort


def read_bytes(
    m: Module, read: ReadPort, byte_address: Signal, there: Value
) -> tuple[Signal, Signal, Signal]:
    """Read a memory byte by byte; return ``(valid, data, ready)`` of that stream.

    Throughput: one byte every second cycle.

    Parameters
    ----------
    byte_address
        Address of the next byte: it is incremented when the byte is accepted. May be set while ``there`` is
        0.
    there
        Whether that byte has been written.
    """
    valid, ready = Signal(name=f"{byte_address.name}_valid"), Signal(name=f"{byte_address.name}_ready")
    m.d.comb += read.addr.eq(byte_address)
    m.d.sync += valid.eq(there & ~(valid & ready))
    with m.If(valid & ready):
        m.d.sync += byte_address.eq(byte_address + 1)
    return valid, read.data, ready
