"""From components to Verilog that linters accept."""
