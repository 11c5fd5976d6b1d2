"""Benchmarks: the hardware's cycles, the same networks on the processor, and published figures of others."""
