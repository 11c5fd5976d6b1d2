"""Changes of a netlist, and data read from it, between synthesis and place and route."""
