# ruff: noqa: E501
"""Bad input as a reader gives it, without the type checker of the tests: one error that says what to do."""

import json
import re
import subprocess
import sys

import pytest

SETUP = """
import dataclasses, json, sys, tempfile, numpy as np, torch
from pathlib import Path
import iclkit
from iclkit import Repeats, TrainConfig, Transformer, TransformerConfig, circuits, train
from iclkit.circuits import formation
from iclkit.tasks import Batch

config = TransformerConfig(d_vocab=8, n_ctx=16, n_layers=2, d_model=8, n_heads=2)
task = Repeats(vocab=8, length=16, min_period=3, max_period=5, batch_size=4)
plan = TrainConfig(steps=2)
inputs, targets, _ = task.batch(0, 0)
model, other = Transformer(config), task.batch(0, 1).inputs
few = Transformer(dataclasses.replace(config, d_vocab_out=3))
vectors = Transformer(dataclasses.replace(config, embedded=True))
_, cache = model.run_with_cache(inputs)
folder = Path(tempfile.mkdtemp())
(folder / "file").write_text("mine")
broken = Transformer(config)
with torch.no_grad():
    broken.blocks[0].attn.W_V.fill_(float("nan"))


class Given:
    def __init__(self, *parts):
        self.parts = Batch(*parts)

    def batch(self, seed, step):
        return self.parts


def metric(logits):
    return logits[:, -1, 3].mean()
"""

CASES = {
    # models
    "TransformerConfig(layer_norm='False')": "layer_norm must be one of False, True; got 'False'",
    "TransformerConfig(positions=['absolute'])": "positions must be one of",
    "TransformerConfig(init_scale='1')": "init_scale must be positive and finite; got '1'",
    "TransformerConfig(init_scale=float('inf'))": "init_scale must be positive and finite",
    "TransformerConfig(d_head=True)": "d_head must be a whole number",
    "model([[1, 2]])": r"takes int \[batch seq\].*got list",
    "model(np.ones((1, 2), int))": r"takes int \[batch seq\].*got ndarray",
    "model(inputs.to(torch.uint8))": r"takes int \[batch seq\].*torch.int64.*got torch.uint8",
    "model(inputs > 3)": r"takes int \[batch seq\].*got torch.bool",
    "vectors(torch.zeros(1, 2, 8).double())": r"takes float \[batch seq 8\].*torch.float32.*got torch.float64",
    # hooks and caches
    "model.run_with_hooks(inputs, [(('pattern', 0), lambda x, hook: x.double())])": "float64.*expected None or",
    "model.run_with_hooks(inputs, ('hook_embed', print))": r"pairs \(name, function\).*got 'hook_embed'",
    "model.run_with_hooks(inputs, [('hook_embed', 3)])": r"pairs \(name, function\).*got \('hook_embed', 3\)",
    "model.run_with_cache(inputs, 'hook_embed')": r"a list of names.*got 'hook_embed'",
    "cache['pattern', 0, 1]": r"named by its full name or by \(name, layer\).*got \('pattern', 0, 1\)",
    "cache[3]": r"named by its full name or by \(name, layer\)",
    "model.run_with_cache(inputs, [('z', 0)])[1]['pattern', 0]": r"this cache holds no activation.*\('pattern', 0\)",
    # tasks
    "Repeats(vocab=8.5)": "vocab must be a whole number; got 8.5",
    "Repeats(batch_size='9')": "batch_size must be a whole number; got '9'",
    "iclkit.repeated_tokens(vocab=1, period=4, distinct=False)": "vocab.*2 or more; got 1",
    "iclkit.repeated_tokens(vocab=8, period=2.5)": "period must be a whole number; got 2.5",
    # training
    "TrainConfig(steps=2.5)": "steps must be a whole number; got 2.5",
    "TrainConfig(lr='a')": "expected steps ≥ 1, lr > 0",
    "TrainConfig(lr=float('inf'))": "expected steps ≥ 1, lr > 0",
    "TrainConfig(weight_decay=float('nan'))": "weight_decay ≥ 0",
    "TrainConfig(clip=-1.0)": "clip must be None or a positive",
    "TrainConfig(betas=0.9)": "betas must be two numbers",
    "TrainConfig(schedule=['linear'])": "schedule must be one of",
    "TrainConfig(rates={'a': 0.1})": r"rates are pairs of a pattern.*got {'a': 0.1}",
    "train(few, task, plan)": "targets must lie in 0 … 2.*d_vocab_out",
    "train(Transformer(config), None, plan)": r"a task has batch\(seed, step\).*got NoneType",
    "train(Transformer(config), Repeats, plan)": "the class Repeats; make an instance",
    "train(Transformer(config), Given(inputs, targets, targets > 99), plan)": "before the first update.*mask",
    "train(Transformer(config), Given(inputs, targets, (targets > 3).long()), plan)": "mask must be bool",
    "train(Transformer(config).requires_grad_(False), task, plan)": "no weight to train",
    "train(Transformer(config), task, TrainConfig(steps=7, lr=1e30))": "the loss at step 6 is.*lower lr",
    "train(Transformer(config), task, plan, measure_at=[-1])": "measure_at.*at least 0; got -1",
    "train(Transformer(config), task, plan, folder=folder / 'file')": "file cannot hold a run",
    "TrainConfig(betas=(0.9, 1.5))": r"two numbers in \[0, 1\).*got \(0.9, 1.5\)",
    "train([Transformer(config)], task, plan)": r"expected a Transformer for each run; got \[Transformer",
    "train(Transformer(config), task, {'steps': 2})": "expected a TrainConfig for each run; got {'steps': 2}",
    "train(Transformer(config), task, plan, checkpoint_at=2)": r"checkpoint_at lists.*as in \[2\]; got 2",
    "train(Transformer(config), task, plan, measures=[metric])": r"measures are a dict.*got \[<function metric",
    "train(Transformer(config), task, plan, device='gpu')": "device must be None or one of cpu.*got 'gpu'",
    "train(Transformer(config), Given(inputs, targets.float()), plan)": "targets are whole numbers.*got torch.float32",
    "train(Transformer(config), Given(inputs.numpy(), targets), plan)": r"returns Batch\(.*of tensors; got Batch",
    # many models
    "iclkit.train_many(None, task, plan)": "models are a list, one for each run; got None",
    "iclkit.train_many([Transformer(config)], task, plan, measure_at=2)": "measure_at lists.*got 2",
    "iclkit.train_many([Transformer(config)], Given(inputs, targets[:, -1]), plan)": r"targets must be.*got \(4,\)",
    "iclkit.train_many([Transformer(config)], task, plan, precision='bf16')": "one of float32, bfloat16; got 'bf16'",
    "train(Transformer(config), task, plan, folder=folder / 'new', measures={'a': lambda m: {1}})": (
        "measures kept in a folder.*'a'"
    ),
    "iclkit.grid(plan, lr=torch.logspace(-4, -2, 3))": r"lr > 0.*Python's numbers \(axis.tolist\(\).*lr=tensor",
    "iclkit.sweep(metric, plan)": r"configs are a list.*got TrainConfig\(steps=2",
    # circuits
    "circuits.ablate(model, ['L0H0'])": r"heads are pairs \(layer, head\).*got 'L0H0'",
    "circuits.ablate(model, (0, 1))": r"heads are pairs \(layer, head\).*got 0",
    "circuits.ablate(model, [(0.0, 0)])": r"whole numbers.*got \(0.0, 0\)",
    "circuits.ablate(model, [(0, 0)], 'mean', reference=inputs[:0])": "reference holds no sequence",
    "circuits.QK(model, '0', 0)": r"whole numbers.*got \('0', 0\)",
    "circuits.ablate_each_head(model, inputs, lambda logits: logits)": r"metric must return one number.*\(4, 16, 8\)",
    "circuits.activation_patch(model, inputs, other, lambda logits: None)": "metric must return one number.*None",
    "circuits.activation_patch(broken, inputs, other, metric)": "the metric is nan on the clean",
    "circuits.path_patch(model, inputs, other, (0, 0), 'Out', metric)": r"no node \(0, 0\)",
    "circuits.patch_edges(model, inputs, other, ('L0H0', 'Out'))": r"pairs \(sender, receiver\).*got 'L0H0'",
    "circuits.direct_logit_attribution(cache, model, targets - 5)": "targets must be whole numbers in 0 … 7",
    "circuits.direct_logit_attribution(cache, model, targets + 5)": "targets must be whole numbers in 0 … 7",
    "circuits.direct_logit_attribution(cache, model, targets > 3)": "targets must be whole numbers in 0 … 7",
    "circuits.token_losses(model(inputs), inputs + 9)": "tokens must be whole numbers in 0 … 7",
    "circuits.token_losses(model(inputs), inputs * 0 - 100)": "tokens must be whole numbers in 0 … 7",
    "circuits.prefix_matching(model, inputs[:0])": "at least one sequence",
    "circuits.copying_score_logits(model, inputs[:0])": "at least one sequence",
    "circuits.prefix_matching_score(cache['pattern', 0] * float('nan'), inputs)": "pattern holds NaN.*diverge",
    "circuits.copying_score(broken)": "NaN or infinity.*no eigenvalues",
    "circuits.composition_scores(broken, 'K')": "NaN or infinity",
    "circuits.composition_baseline(model, 1)": "at least 2 samples; got 1",
    "formation.window([1, 2, 3], [0, float('nan'), 1])": "one curve of finite values",
    "formation.formed_at([1, 2, 3], [0, 1, float('nan')])": "one curve of finite values",
    "formation.formed_at([1, 2], [[0, 1], [0, 1]])": r"one curve of finite values.*\(2, 2\)",
    # figures
    "iclkit.figures.heatmap(np.zeros((2, 2)), rows=['a'])": "expected 2 names.*got 1",
    "iclkit.explore(print, alt=str, step=5)": "step must be a list of values.*got 5",
    "iclkit.explore(print, alt=str, step='abc')": "step must be a list of values.*got 'abc'",
    "iclkit.explore(print, alt='a picture', step=[1, 2])": "alt must be a function.*got str",
}
RUN = """
said = {}
for case in json.load(sys.stdin):
    try:
        eval(case)
        said[case] = "nothing"
    except Exception as error:
        said[case] = f"{type(error).__name__}: {error}"
said["the file"] = (folder / "file").read_text()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said():
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SETUP + RUN],
        input=json.dumps(list(CASES)), capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", CASES)
def test_one_error_says_what_to_do(said, case):
    assert re.search(CASES[case], said[case], re.S), said[case]


def test_no_file_is_lost(said):
    assert said["the file"] == "mine"
