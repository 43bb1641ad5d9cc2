"""The training step by hand: the same model and the same numbers as `iclkit.model`, in fewer passes.

A reader never needs this folder. `iclkit.model` says what is computed; here its derivative is written out,
for M models at once, a few sequences at a time, so that activations stay in the processor's cache.
`tests/fast` holds the two together.
"""
