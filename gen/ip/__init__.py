"""Files of a build folder for other people's flows: a testbench, constraints and packages of the core."""
