"""The pictures of a build's report: what is where in each; the page's template draws them."""
