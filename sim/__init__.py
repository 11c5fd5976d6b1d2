"""Golden model, float reference, simulators and the testbench."""
