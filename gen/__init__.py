"""From a model to a build: front ends, quantiser, report, command line."""
