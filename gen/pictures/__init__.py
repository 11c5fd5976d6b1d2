"""The pictures of a build's report: each module says what is where in one; Vega draws them."""
