"""Wrappers that connect the core to buses: AXI4-Stream with AXI4-Lite, or Wishbone."""
