"""What the tests share: networks, builds, devices, testbenches."""
