"""Which bits, which device, which array: searches builds of a network for the best ones."""
