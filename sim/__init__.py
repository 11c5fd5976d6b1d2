"""Golden model, float reference, simulators, simulated boards and the testbench."""
