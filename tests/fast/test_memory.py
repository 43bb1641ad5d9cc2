"""Steps reuse the memory of the steps before them."""

import platform
import resource

import pytest

from iclkit.fast import memory
from iclkit.fast.step import Step
from iclkit.model import Transformer, TransformerConfig
from iclkit.tasks import Repeats
from iclkit.training import TrainConfig

TASK = Repeats(vocab=16, length=128, min_period=8, max_period=24, batch_size=32)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only GNU's C library is told to keep memory")
def test_a_warm_step_takes_no_new_pages():
    shape = TransformerConfig(d_vocab=16, n_ctx=128, d_mlp=256, layer_norm=True)
    step, batch = Step([Transformer(shape)], [TrainConfig(steps=20)]), TASK.batch(0, 0)
    for _ in range(5):
        step([batch])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        step([batch])
    pages = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 5
    step.release()
    assert pages < 200, f"{pages} page faults a step; activations alone fill thousands of pages"


@pytest.mark.parametrize("library", ["glibc", "", "musl"])
def test_other_c_libraries_are_left_alone(monkeypatch, library):
    called = []
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: (library, ""))
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: called.append(name) or FakeLibrary())
    memory.keep_freed_memory()
    memory.return_freed_memory()
    assert bool(called) == (library == "glibc")


class FakeLibrary:
    def mallopt(self, option, value):
        return 1

    def malloc_trim(self, pad):
        return 1
