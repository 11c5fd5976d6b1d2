"""From a float network to integers: calibration, lowering, quantisation, accuracy."""
