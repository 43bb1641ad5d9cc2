"""The smallest models that show one thing each: import them by name, `from iclkit.minimal.sa import SA`."""
