"""FPGAs: device families, estimates, fit, synthesis, place and route."""
