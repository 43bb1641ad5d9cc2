"""Task vectors: a model built by hand in which the right answer of a swap is known, and the probe's twins."""

import math

import pytest
import torch

from iclkit.circuits import task_vectors as tv
from iclkit.model import Transformer, TransformerConfig
from iclkit.tasks import Markov, generator

CONFIG = TransformerConfig(d_vocab=5, n_ctx=12, d_model=8, n_heads=1, d_mlp=16, layer_norm=True)
TASK = Markov(K=3, length=12, batch_size=60)


def tokens(seed: int = 0) -> torch.Tensor:
    return TASK.batch(seed, 0).inputs


def test_own_vectors_change_nothing_and_the_last_ones_change_everything():
    model, own, donors = Transformer(CONFIG), tokens(0), tokens(1)
    for at in (tv.POOLED, ("attn_out", 0), ("resid_post", 0), ("mlp_out", 1)):
        torch.testing.assert_close(tv.swap(model, own, own, at), model(own)[:, -1].detach())
    swapped = tv.swap(model, own, donors, ("resid_post", 1))
    torch.testing.assert_close(swapped, model(donors)[:, -1].detach())


def test_a_swap_is_a_run_with_the_donors_vector():
    """A slow twin: the last block from its parts, with the donor's attention output put in."""
    model, own, donors = Transformer(CONFIG), tokens(0), tokens(1)
    _, cache = model.run_with_cache(own)
    _, given = model.run_with_cache(donors)
    mid = cache["resid_pre", 1][:, -1] + given["attn_out", 1][:, -1]
    mlp, x = model.blocks[1].mlp, torch.nn.functional.layer_norm(mid, (8,))
    final = mid + (x @ mlp.W_in + mlp.b_in).relu() @ mlp.W_out + mlp.b_out
    expected = torch.nn.functional.layer_norm(final, (8,)) @ model.W_U
    torch.testing.assert_close(tv.swap(model, own, donors), expected.detach(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(tv.task_vector(model, own), cache["attn_out", 1][:, -1].detach())


def test_donors_are_of_another_chain_and_if_asked_of_the_same_state():
    drawn = TASK.draw(0, 0)
    state = drawn.tokens[:, -2]
    for seed in range(3):
        donor = tv.pick_donors(drawn.chain, seed=seed)
        assert (drawn.chain[donor] != drawn.chain).all() and (state[donor] != state).any()
        same = tv.pick_donors(drawn.chain, state, seed)
        assert (drawn.chain[same] != drawn.chain).all() and (state[same] == state).all()
    assert not torch.equal(tv.pick_donors(drawn.chain, seed=0), tv.pick_donors(drawn.chain, seed=1))


def test_follows_counts_who_is_nearer():
    own, donor = (torch.tensor([row] * 4).double().log() for row in ([0.9, 0.1], [0.2, 0.8]))
    found = tv.follows(torch.cat([own[:1], donor[:3]]), own, donor)
    kl = 0.9 * math.log(0.9 / 0.2) + 0.1 * math.log(0.1 / 0.8)
    assert found.share == pytest.approx(0.75) and found.own == pytest.approx(0.75 * kl)
    assert tv.follows(donor, own, donor).donor == pytest.approx(0, abs=1e-6)


def test_the_probe_reads_what_is_there_and_not_what_is_not():
    random = generator(3)
    label = torch.randint(4, (400,), generator=random)
    centres = torch.randn(4, 6, generator=random)
    x = 7 + centres[label] + 0.1 * torch.randn(400, 6, generator=random)
    noise = torch.randn(400, 6, generator=random)
    assert (tv.LinearProbe(x[:200], label[:200], 4)(x[200:]) == label[200:]).all()
    guessed = tv.LinearProbe(noise[:200], label[:200], 4)(noise[200:])
    assert (guessed == label[200:]).double().mean() < 0.45


def test_the_probe_solves_its_equation():
    """The gradient of the ridge loss vanishes at W."""
    x, label = torch.randn(50, 3, generator=generator(1)), torch.arange(50) % 2
    probe = tv.LinearProbe(x, label, 2, ridge=0.01)
    z = (x.double() - x.double().mean(0)) / x.double().std(0)
    z = torch.cat([z, torch.ones(50, 1, dtype=torch.float64)], 1)
    W = probe.W.clone().requires_grad_()
    wanted = torch.nn.functional.one_hot(label, 2).double()
    ((z @ W - wanted).square().sum() + 0.01 * 50 * W.square().sum()).backward()
    assert W.grad.abs().max() < 1e-9


def test_the_share_between_classes():
    label = torch.tensor([0, 0, 1, 1])
    assert tv.between(torch.tensor([[0.0], [0.0], [2.0], [2.0]]), label) == pytest.approx(1)
    assert tv.between(torch.tensor([[-1.0], [1.0], [-1.0], [1.0]]), label) == pytest.approx(0)
    mixed = torch.tensor([[0.0], [2.0], [4.0], [6.0]])  # means 1 and 5 around 3: 16 of 20
    assert tv.between(mixed, label) == pytest.approx(0.8)


def test_bad_input():
    model = Transformer(CONFIG)
    with pytest.raises(ValueError, match="one shape"):
        tv.swap(model, tokens(), tokens()[:, 1:])
    with pytest.raises(ValueError, match=r"where \[batch seq d_model\] is"):
        tv.task_vector(model, tokens(), ("pattern", 1))
    with pytest.raises(KeyError, match="no activation named"):
        tv.task_vector(model, tokens(), ("attn_out", 2))
    with pytest.raises(ValueError, match="no sequence of another chain than 0 to be a donor"):
        tv.pick_donors(torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="in state 1 to be a donor"):
        tv.pick_donors(torch.tensor([0, 1, 0]), torch.tensor([0, 0, 1]))
