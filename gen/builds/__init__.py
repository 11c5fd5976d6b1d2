"""Makes build folders from quantised networks, and adds results to them."""
