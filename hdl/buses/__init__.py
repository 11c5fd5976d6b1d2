"""The core behind a system's buses: AXI4-Stream with AXI4-Lite, or Wishbone."""
