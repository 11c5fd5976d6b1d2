"""cocotb benches, which simulators import by name."""
