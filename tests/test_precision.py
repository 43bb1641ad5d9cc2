"""Bfloat16 and compiling: refused where they cannot help, close to plain float32 elsewhere."""

import shutil
import subprocess
import sys

import pytest
import torch
from twins import ALL, SMALL, batch_for, built, gap

from iclkit import stepping
from iclkit.model import Transformer
from iclkit.stepping import ByAutograd, build_stepper
from iclkit.training import TrainConfig

PLAN = TrainConfig(steps=20, lr=3e-3, clip=1.0, warmup=3, schedule="cosine")


def test_bfloat16_is_refused_where_the_processor_has_none(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    with pytest.raises(ValueError, match='no bfloat16 arithmetic of its own.*use precision="float32"'):
        build_stepper([Transformer(SMALL)], [PLAN], precision="bfloat16")
    with pytest.raises(ValueError, match="precision must be one of float32, bfloat16; got 'float16'"):
        build_stepper([Transformer(SMALL)], [PLAN], precision="float16")


def losses_of(model, **how):
    stepper = build_stepper([model], [PLAN], **how)
    found = torch.cat([stepper.step([batch_for(model, n, 16, 14)], n) for n in range(20)])
    stepper.close()
    return found


def test_bfloat16_follows_float32_and_keeps_weights_and_moments_in_float32(monkeypatch):
    monkeypatch.setattr(stepping, "has_bfloat16", lambda device: True)
    model, twin = (built(ALL, 0, torch.float32) for _ in range(2))
    difference = (losses_of(model, precision="bfloat16") - losses_of(twin)).abs()
    print(f"bfloat16 {difference.max():.1e}, weights {gap(model, twin):.1e}")
    assert 1e-5 < difference.max() < 0.01
    assert {w.dtype for w in model.parameters()} == {torch.float32}
    stepper = build_stepper([model], [PLAN], precision="bfloat16")
    stepper.step([batch_for(model, 0)], 0)
    assert isinstance(stepper, ByAutograd) and {v.dtype for v in stepper.state().values()} == {torch.float32}


COMPILED = """
import torch
from iclkit import Repeats, TrainConfig, Transformer, TransformerConfig, train
shape = TransformerConfig(d_vocab=8, n_ctx=12, n_layers=1, d_model=8, n_heads=2, d_mlp=16, layer_norm=True)
task = Repeats(vocab=8, length=12, min_period=3, max_period=4, batch_size=8)
runs = [train(Transformer(shape), task, TrainConfig(steps=20, lr=3e-3), compile=c) for c in (False, True)]
print(abs(runs[0].losses - runs[1].losses).max())
print(max((w - v).abs().max().item() for w, v in zip(*(run.model.parameters() for run in runs))))
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
def test_compiled_updates_are_the_eager_ones():
    """In a process of its own: the tests' type checker cannot be compiled."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    losses, weights, graphs = map(float, done.stdout.split())
    assert losses < 1e-5 and weights < 1e-5 and graphs > 0
