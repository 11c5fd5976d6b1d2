"""Device families: one module each, beside its Verilog, found by their entry points."""
