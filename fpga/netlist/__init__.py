"""What is changed in a netlist, or read from it, between synthesis and place and route."""
