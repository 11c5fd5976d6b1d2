"""The core of networks with reverse directions, which takes whole sequences."""
