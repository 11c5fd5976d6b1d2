"""How tools from outside are found and run, and the cache of what they built."""
