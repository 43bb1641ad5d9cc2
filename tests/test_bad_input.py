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
from iclkit import Repeats, TrainConfig, Transformer, TransformerConfig, circuits, phases, race, train
from iclkit.circuits import formation, subsets, task_vectors as tv
from iclkit.minimal import capacity, recognition, sa
from iclkit.predictors import Distances, Gen, Mem
from iclkit.records.models import load_model, pack
from iclkit.records.store import Record
from iclkit.tasks import Batch, generator
from iclkit.tasks.markov import Markov, chains_of, sample
from iclkit.tasks.told import Told

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

nan, long = float("nan"), torch.int64
mixture = Markov(vocab=3, K=4, length=8, batch_size=4)
states, swap = mixture.batch(0, 0).inputs, chains_of(torch.tensor([[[0.0, 1], [1, 0]]]))
world, head = sa.contexts(mixture, 0), recognition.HeadConfig()
returning = sa.Contexts(torch.tensor([[0, 1, 0, 1, 0, 1]]), torch.tensor([[1.0, 0, 0]]).double())
small = Transformer(dataclasses.replace(config, n_layers=1))
x, label, even = torch.randn(4, 2), torch.tensor([0, 1, 0, 1]), torch.zeros(2, 3).log_softmax(1)
steps, far = [0, 1, 2, 3, 4], np.ones((5, 2, 5))


def holding(config, **arrays):
    return Record("mine", arrays, {"config": [{"variant": "K8", "model": dataclasses.asdict(config)}]})


kept = holding(config, **{f"K8/0/3/{name}": weight for name, weight in pack(model).items()})
narrow = holding(dataclasses.replace(config, d_model=4, n_heads=1), **kept)


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
    "iclkit.figures.circuit(['a'], [])": r"at least two nodes, each of them once; got \['a'\]",
    "iclkit.figures.circuit(['a', 'a'], [])": "each of them once",
    "iclkit.figures.circuit(['a', 'b'], {('a', 'b'): 2.0})": r"lies in 0 … 1; got \('a', 'b'\): 2.0",
    "iclkit.figures.circuit(['a', 'b'], {('a', 'b'): nan})": "lies in 0 … 1.*nan",
    "iclkit.figures.circuit([1, 2], [(2, 1)])": r"\(2, 1\) is no edge between the nodes 1, 2",
    # chains
    "Markov(K=2, weights=1.0)": "relative numbers, one a chain, or None; got 1.0",
    "sample(swap, torch.tensor([0]), 0, generator(0))": "length ≥ 1.*got 0",
    "sample(swap, torch.tensor([-1]), 3, generator(0))": "chains 0 … 0; got 3 and tensor.*-1",
    "sample(swap, torch.tensor([1]), 3, generator(0))": "chains 0 … 0; got 3 and tensor.*1",
    "Told(None, 8)": "task is a Markov.*got NoneType",
    "Told(mixture, 8, share='a')": "are numbers; got 1.0, 'a'",
    "Told(mixture, 8).embed(states - 3)": "states are whole numbers in 0 … 2; got torch.int64 from -3",
    "Told(mixture, 8).embed(states + 5)": "states are whole numbers in 0 … 2",
    "Told(mixture, 8).embed(states.float())": "whole numbers.*got torch.float32",
    # ideal observers
    "Gen(1, 2.5)": "vocab must be a whole number; got 2.5",
    "Mem(1, mixture)": r"expected Chains, as task.chains\(\).*got Markov",
    "Gen(2, 3)(states, [8])": r"a sequence of 8, -8 … 7, as in \(-1,\); got \[8\]",
    "Gen(2, 3)(states, -1)": "positions lists places.*got -1",
    "Gen(2, 3)(states, [1.5])": r"positions lists places.*got \[1.5\]",
    "Distances(mixture, 10, positions=(8,))": "positions lists places of a sequence of 8",
    "Distances(mixture, 10, positions=())": "at least one place",
    "Distances(mixture, 10, seed=0.5)": "seed must be a whole number; got 0.5",
    # when runs are in which phase
    "phases.names(far, np.ones((2, 5, 5)), margin=nan)": "margin and alike are at least 0; got nan",
    "phases.first_time(steps, [nan] * 5)": "true or false at each look.*got float64",
    "phases.first_time(steps, [True] * 5, 1.5)": "lasting must be a whole number; got 1.5",
    "phases.first_time([0, nan, 1], [True] * 3)": "expected rising steps.*nan",
    "phases.turning(steps, [5, 4, nan, 4, 5], 1)": "finite values and least ≥ 0; got nan",
    "phases.turning(steps, [5, 4, 3, 4, 5], nan)": "least ≥ 0; got 3.0 … 5.0 and nan",
    "phases.median_time([])": r"at least one seed; got \[0\]",
    "race.threshold([0, 8], [1, -1])": "numbers of chains, above 0; got",
    "race.threshold(8, 1)": r"expected one lean a K.*got \[\] for K \[\]",
    "capacity.waits(steps, np.ones((5, 2, 4)))": r"expected distances \[… step 2 5\].*got \[5, 2, 4\]",
    "capacity.waits(steps, 0 * far)": "above 0; got.*least 0",
    "capacity.waits(steps, far, ratio=-1)": "a ratio, above 0.*and -1",
    "capacity.by_line([4, 8], [1, 2, 3])": r"K and a wait for each run; got \[2\] and \[3\]",
    "capacity.by_power([-1, 0, 1, 2], [1, 2, 3, 4])": "numbers of chains, above 0",
    "capacity.bootstrap(capacity.by_line, [4, 8], [1, 2, 3])": r"got \[2\] and \[3\]",
    "capacity.bootstrap(capacity.by_line, [4, 8], [1, 2], draws=0)": "draws ≥ 1.*got 0 of 2",
    "capacity.memory_gap(far[0], np.zeros((2, 5, 5)))": "must be apart on training chains",
    "capacity.reached([0, 4], far[:2], np.ones((2, 2, 5, 5)))": "numbers of chains, above 0",
    "capacity.memory_gap([1], [2])": r"distances \[… 2 5\] and apart \[… 2 5 5\].*got \[1\] and \[1\]",
    # every subset of the edges
    "subsets.every_subset(small, inputs, other, lambda logits: logits.mean())": r"each of 4 subsets.*got \[\]",
    "subsets.every_subset(small, inputs, other, lambda logits: logits[..., 0])": r"each of 4 subsets.*got \[4, 4\]",
    "subsets.every_subset(small, inputs, other, lambda logits: logits[..., 0].mean(1) * nan)": "a finite number",
    "subsets.edges_in(small, -1)": r"this model's subsets are 0 … 2\^3 − 1; got -1",
    "subsets.edges_in(small, 2**3)": "this model's subsets.*got 8",
    "subsets.smallest(torch.ones(7))": r"each of 2\^edges subsets.*got \[7\]",
    "subsets.smallest(torch.tensor([nan, 1]))": "a finite share",
    "subsets.without_each(torch.ones(7))": r"each of 2\^edges subsets",
    # task vectors
    "tv.pick_donors(label, label[:1])": r"of each of at least two sequences; got \[4\] and \[1\]",
    "tv.pick_donors(label[:0])": r"at least two sequences; got \[0\] and None",
    "tv.follows(even, even, even[:1])": r"one shape \[batch vocab\].*\[1, 3\]",
    "tv.follows(even * nan, even, even)": "expected finite logits",
    "tv.follows(even, even.exp(), even.exp())": r"exp sums to 1 \(take rows.log\(\)\)",
    "tv.LinearProbe(x, label, 1)": "labels in 0 … K − 1.*labels 0 … 1, K=1",
    "tv.LinearProbe(x, label - 1, 2)": "labels -1 … 0",
    "tv.LinearProbe(x, label[:3], 2)": r"label for each; got \[4, 2\] and torch.int64 \[3\]",
    "tv.LinearProbe(x[:1], label[:1], 2)": "at least 2 vectors.*got 1 vectors",
    "tv.LinearProbe(x * nan, label, 2)": "vectors hold NaN or infinity",
    "tv.LinearProbe(x, label, 2, ridge=-1)": "finite ridge ≥ 0.*ridge=-1",
    "tv.LinearProbe(x, label, 2)(x[:, :1])": r"reads vectors \[batch 2\]; got \[4, 1\]",
    "tv.between(x, label[:3])": "a torch.int64 label for each",
    "tv.between(x * nan, label)": "vectors hold NaN or infinity",
    # smallest models
    "sa.SA(1)": "vocab must be at least 2; got 1",
    "sa.SA(2)(states + 1)": "states are 0 … 1",
    "sa.SA(3)(states.float())": r"tokens \[batch seq\] in torch.int64; got torch.float32",
    "sa.SA(3, delta=1e3)(states)": "a finite beta and a delta below 709; got 0.0 and 1000.0",
    "sa.SA(3, beta=nan)(states)": "a finite beta.*got nan",
    "sa.SA(3).loss(sa.Contexts(states, torch.ones(1, 3) / 3))": r"rows \[batch 3\]; got \[1, 3\]",
    "sa.SA(3).loss(states)": r"Contexts of sequences and their rows \[batch 3\]; got Tensor",
    "sa.coefficients(world, floor=0)": "0 < floor < 1.*got 0",
    "sa.coefficients(sa.Contexts(world.tokens[:1], world.rows[:1]))": "at least two sequences; got 1",
    "sa.wait(nan, 1, 1)": "expected finite pushes.*got nan, 1, 1",
    "sa.wait(1, 1, 1, level=0)": "level > 0; got 1, 1, 1, 0",
    "sa.descend(sa.SA(3), world, lr=nan, steps=2)": "a finite lr > 0.*got nan, 2",
    "sa.descend(sa.SA(3), world, lr=1.0, steps=-1)": "steps ≥ 0.*got 1.0, -1",
    "sa.descend(sa.SA(3), world, lr=1.0, steps=2, batch=0)": "batch ≥ 1; got 1.0, 2 and 0",
    "sa.descend(sa.SA(3), returning, lr=1e9, steps=3)": "after steps of descent: lower lr",
    "sa.fallen([0, 1, 2], [3, 3, 3])": r"falls below its first value.*got \[3\]",
    "sa.fallen([0, 1, 2], [3, 2, 1], share=2)": "0 < share ≤ 1.*and 2",
    "recognition.features(states.int(), 3)": "tokens .batch seq. in torch.int64.*got torch.int32",
    "recognition.features(states[:0], 3)": "at least one; got",
    "recognition.RecognitionHead(recognition.HeadConfig(d_phi=5), recognition.init(head, 0))": (
        r"d_phi=5.* has the weights W_enc \[9, 5\].*got W_enc \[9, 4\]"
    ),
    "recognition.train_heads([head], [], 0, 2)": r"at least one task.*got \[\]",
    "recognition.train_heads([head], [mixture, dataclasses.replace(mixture, length=9)], 0, 2)": "all of one length",
    "recognition.train_heads([head], [mixture], 0, 0)": "steps ≥ 1.*got 0, 0.01 and 0",
    "recognition.train_heads([head], [mixture], 0, 2, first=8)": "first in 0 … 7; got 2, 0.01 and 8",
    "recognition.train_heads([head], [mixture], 0, 8, lr=1e30)": r"the loss of the heads.*nan; lower lr=1e\+30",
    # models in records
    "load_model(kept, 'K8', 0, 3.0)": r"has steps \[3\] of 'K8', seed 0; got step=3.0",
    "load_model(kept, 'K8', 1, 3)": "has no seed 1 of 'K8'; it has 0",
    "load_model(narrow, 'K8', 0, 3)": "RecordError.*do not fit its config.*'d_model': 4.*make the record anew",
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
