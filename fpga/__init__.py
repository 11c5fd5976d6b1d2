"""FPGAs: devices, estimates, fit, synthesis, place and route."""
