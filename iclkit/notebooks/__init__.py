"""Execute, normalise and check the chapters: `python -m iclkit.notebooks run`, `… check`."""
