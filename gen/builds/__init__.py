"""From a quantised network to a build folder, and what is kept in it afterwards."""
