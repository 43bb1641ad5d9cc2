"""How fast we train, beside the libraries of the field: `python tests/benchmarks`, in the peers' environment.

shapes    the models and batches that are timed        blocks    short blocks, in turn, one process a variant
plain     our own plain PyTorch, the fair baseline     worker    what such a process does
peers     the libraries, at equal parameters           results   one JSON file; medians, ranges, ratios
jaxed     plain JAX and equinox                        shares    what takes the rest
limit     the model's own matrix products alone        command   the parts, in order
many      eight models at once                         ours      the one file that touches iclkit's step
"""
