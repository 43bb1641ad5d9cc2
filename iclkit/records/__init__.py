"""Shipped results: arrays with the seeds, versions and recipe that made them.

record = records.load("induction_104")        a mapping name → array, and record.meta
python -m iclkit.records make induction_104   makes it anew
"""

from iclkit.records.models import load_model
from iclkit.records.quoting import quoted
from iclkit.records.store import DATA, Record, RecordError, load, save

__all__ = ["DATA", "Record", "RecordError", "load", "load_model", "quoted", "save"]
