"""Golden model, float reference, simulators and the verification bench."""
