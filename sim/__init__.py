"""Golden model, float reference, simulators, simulated boards, and cores in cocotb tests."""
