"""cocotb testbenches, which simulators import by name."""
