"""Benchmarks: the hardware's cycles, the same networks on the processor, and others' figures beside them."""
