"""Published models: fetched from the package index, built, verified and measured."""
