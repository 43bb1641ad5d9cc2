"""Weights that learn at a pace of their own: by hand, stacked, by autograd and in a plain loop, all alike."""

import json
from dataclasses import replace

import pytest
import torch
from twins import ALL, Plain, batch_for, built, gap

from iclkit.ensemble import train_many
from iclkit.fast.step import Step
from iclkit.model import Transformer
from iclkit.tasks import Repeats
from iclkit.training import TrainConfig, describe, fit, train

LOOKING = "blocks.0.attn.W_[QK]"
SHAPE = replace(ALL, d_vocab=8, d_vocab_out=8, positions="shortformer")
TASK = Repeats(vocab=8, length=12, min_period=3, max_period=5, batch_size=8)
PLAN = TrainConfig(steps=20, lr=3e-3, weight_decay=0.1, warmup=5, clip=0.5)
SLOW = replace(PLAN, rates=((LOOKING, 0.1),))
MIXED = replace(PLAN, rates=((LOOKING, 0.3), ("*.ln*", 0), ("blocks.1.*", 2.0), ("*.W_O", 0.5)))
PLACED = replace(PLAN, weight_decay=3.0, decays=(("blocks.*", 0.2), ("*.W_O", 0), ("W_E", 5)))
BOTH = replace(PLACED, rates=((LOOKING, 0.3), ("blocks.1.*", 2.0)))


class Paced(Plain):
    """A plain loop with a parameter group a weight, whose learning rate is multiplied by its factor."""

    def __init__(self, model, config):
        super().__init__(model, config)
        groups = [
            {
                "params": [w],
                "weight_decay": config.weight_decay * (w.ndim > 1) * config.decay_of(name),
                "name": name,
            }
            for name, w in model.named_parameters()
        ]
        self.optimiser = torch.optim.AdamW(groups, betas=config.betas, foreach=False)

    def __call__(self, batch):
        loss = self.loss(self.model(batch.inputs), batch)
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.lr_at(self.done) * self.config.rate_of(group["name"])
        self.optimiser.step()
        self.done += 1
        return loss.detach()


def nothing(tensor, hook):
    """A hook that sends training through autograd."""


def moved(model, start):
    """How far each weight is from where it began, by name."""
    begun = dict(start.named_parameters())
    return {name: (w - begun[name]).abs().max().item() for name, w in model.named_parameters()}


@pytest.mark.parametrize("plans", [[SLOW], [MIXED], [MIXED, PLAN, SLOW], [PLACED], [BOTH, PLAN, PLACED]])
def test_by_hand_alone_or_stacked_the_updates_are_those_of_a_plain_loop(plans):
    models, twins = ([built(SHAPE, seed) for seed in range(len(plans))] for _ in range(2))
    step, loops = Step(models, plans), [Paced(*pair) for pair in zip(twins, plans)]
    for n in range(20):
        batches = [batch_for(model, n, 8, 12) for model in models]
        wanted = torch.stack([loop(batch) for loop, batch in zip(loops, batches)])
        torch.testing.assert_close(step(batches), wanted, atol=1e-11, rtol=0)
    assert max(map(gap, models, twins)) < 1e-11


@pytest.mark.parametrize("how", ["stacked", "loop"])
def test_every_way_of_training_agrees(how):
    plans = [SLOW, MIXED, PLACED, BOTH, PLAN]
    by_autograd = [
        train(Transformer(SHAPE, seed), TASK, plan, fwd_hooks=[("hook_embed", nothing)])
        for seed, plan in enumerate(plans)
    ]
    runs = train_many([Transformer(SHAPE, seed) for seed in range(len(plans))], TASK, plans, how=how)
    assert max(gap(run.model, twin.model) for run, twin in zip(runs, by_autograd)) < 1e-5


@pytest.mark.parametrize("hooks", [[], [("hook_embed", nothing)]], ids=["by hand", "autograd"])
def test_a_factor_of_0_freezes_and_others_scale_the_first_update(hooks):
    plan = TrainConfig(steps=1, rates=(("blocks.0.*", 0), ("blocks.1.attn.W_Q", 0.1)))
    start, free = Transformer(SHAPE), Transformer(SHAPE)
    train(free, TASK, replace(plan, rates=()), fwd_hooks=hooks)
    slowed = train(Transformer(SHAPE), TASK, plan, fwd_hooks=hooks).model
    fully, found = moved(free, start), moved(slowed, start)
    for name, distance in found.items():
        factor = 0 if name.startswith("blocks.0.") else 0.1 if name == "blocks.1.attn.W_Q" else 1
        assert distance == pytest.approx(factor * fully[name], rel=1e-3)
        assert fully[name] > 1e-4


def test_scaling_a_gradient_changes_nothing_where_scaling_the_rate_does():
    start, plain, weak, slow = (built(SHAPE) for _ in range(4))
    weight = weak.blocks[0].attn.W_Q
    weight.register_hook(lambda grad: grad * 0.1)
    once = replace(PLAN, clip=None, weight_decay=0.0)
    for model, plan in ((plain, once), (weak, once), (slow, replace(once, rates=((LOOKING, 0.1),)))):
        fit([model], [TASK], [plan])
    far = {name: moved(model, start)["blocks.0.attn.W_Q"] for name, model in
           (("plain", plain), ("weak", weak), ("slow", slow))}  # fmt: skip
    assert far["weak"] == pytest.approx(far["plain"], rel=0.05) and far["slow"] < 0.2 * far["plain"]


@pytest.mark.parametrize("hooks", [[], [("hook_embed", nothing)]], ids=["by hand", "autograd"])
def test_decay_falls_where_its_factor_says(hooks):
    plan = TrainConfig(steps=1, lr=0.1, weight_decay=1.0, decays=(("blocks.0.*", 0), ("W_E", 2)))
    decayed, plain = (
        train(Transformer(SHAPE), TASK, one, fwd_hooks=hooks).model
        for one in (plan, replace(plan, weight_decay=0.0))
    )
    start, other = dict(Transformer(SHAPE).named_parameters()), dict(plain.named_parameters())
    for name, weight in decayed.named_parameters():
        factor = 0 if name.startswith("blocks.0.") or weight.ndim < 2 else 2 if name == "W_E" else 1
        torch.testing.assert_close(weight - other[name], -0.1 * factor * start[name], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("field", ["rates", "decays"])
@pytest.mark.parametrize(
    "rates", [("a", 0.1), (("a", -1),), (("a", float("nan")),), (("a", float("inf")),), ((1, 2),)]
)
def test_impossible_rates_are_refused(rates, field):
    with pytest.raises(ValueError, match=rf"{field} are pairs of a pattern .* factor"):
        TrainConfig(**{field: rates})


@pytest.mark.parametrize("field", ["rates", "decays"])
def test_a_pattern_that_matches_no_weight_is_refused_and_the_weights_named(field):
    plan = TrainConfig(steps=1, **{field: (("blocks.0.attn.W_Q", 1), ("blocks.0.hook_q", 0.1))})
    for call in (train, lambda *job: train_many([job[0]], *job[1:])):
        with pytest.raises(ValueError, match=r"'blocks.0.hook_q' matches no weight .*blocks.0.attn.W_Q"):
            call(Transformer(SHAPE), TASK, plan)


def test_lists_from_json_are_the_same_config():
    for field, pairs in (("rates", SLOW.rates), ("decays", PLACED.decays)):
        plan, twin = TrainConfig(**{field: json.loads(json.dumps(pairs))}), TrainConfig(**{field: pairs})
        assert plan == twin and hash(plan) == hash(twin)


@pytest.mark.parametrize("own", [SLOW, PLACED])
def test_a_saved_run_knows_its_rates_and_one_without_reads_as_before(tmp_path, own):
    train(Transformer(SHAPE), TASK, own, folder=tmp_path)
    with pytest.raises(ValueError, match="holds another run"):
        train(Transformer(SHAPE), TASK, replace(own, rates=(), decays=()), folder=tmp_path)
    again = train(Transformer(SHAPE), TASK, own, folder=tmp_path)
    assert gap(again.model, train(Transformer(SHAPE), TASK, own).model) == 0
    (run,) = fit([Transformer(SHAPE)], [TASK], [PLAN])
    assert not {"rates", "decays"} & set(json.loads(describe(run, TASK, {}, {}))["training"])
