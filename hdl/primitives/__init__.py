"""Memories and multipliers: Amaranth's side of the Verilog beside this file."""
