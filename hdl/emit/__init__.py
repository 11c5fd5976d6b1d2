"""Converts components to Verilog that linters accept."""
