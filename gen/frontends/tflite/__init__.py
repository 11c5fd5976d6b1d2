"""TFLite files: their operators become those of ONNX, which that front end reads."""
