"""For the tests of the step by hand: models with no part at zero, batches, and the same steps by autograd."""

import dataclasses

import torch
from hypothesis import strategies as st

from iclkit.model import Transformer, TransformerConfig
from iclkit.stepping import cross_entropy
from iclkit.tasks import Batch

SMALL = TransformerConfig(d_vocab=11, n_ctx=16, n_layers=2, d_model=8, n_heads=2)
ALL = dataclasses.replace(SMALL, layer_norm=True, d_mlp=12, d_head=3, act="gelu")
LENGTHS = (1, 2, 5, 8, 9, 63, 64, 65, 128, 130, 200)


@st.composite
def shapes(draw) -> TransformerConfig:
    """Every kind of model whose derivative is written out."""
    inputs = draw(st.sampled_from(["tokens", "tied", "embedded"]))
    return dataclasses.replace(
        SMALL,
        n_ctx=draw(st.sampled_from([200, 203])),
        positions=draw(st.sampled_from(["absolute", "shortformer", "none"])),
        n_layers=draw(st.integers(0, 3)),
        n_heads=draw(st.sampled_from([1, 2, 4])),
        d_head=draw(st.sampled_from([1, 3, 4])),
        d_mlp=draw(st.sampled_from([0, 12])),
        act=draw(st.sampled_from(["relu", "gelu"])),
        layer_norm=draw(st.booleans()),
        tied=inputs == "tied",
        embedded=inputs == "embedded",
        d_vocab_out=11 if inputs == "tied" else draw(st.sampled_from([1, 5, 11])),
    )


def stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def built(config: TransformerConfig, seed: int = 0, dtype: torch.dtype = torch.float64) -> Transformer:
    """A model whose biases, gains and shifts are random too, so that no part hides."""
    model = Transformer(config, seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim < 2:
                weight.add_(torch.randn(weight.shape, generator=stream(seed)) * 0.3)
    return model.to(dtype)


def batch_for(model: Transformer, seed: int, size: int = 3, length: int = 9, masked: bool = False) -> Batch:
    """Random inputs and targets; `masked` leaves about a third of the targets, one at least."""
    c, draw = model.config, stream(seed)
    shape = (size, length)
    if c.embedded:
        inputs = torch.randn(*shape, c.d_model, generator=draw, dtype=model.W_U.dtype)
    else:
        inputs = torch.randint(c.d_vocab, shape, generator=draw)
    targets = torch.randint(c.d_vocab_out, shape, generator=draw)
    mask = torch.rand(shape, generator=draw) < 0.3
    mask[-1, -1] = True
    return Batch(inputs, targets, mask if masked else None)


class Plain:
    """The step as a reader would write it: autograd, then `torch.optim.AdamW`; matrices alone decay."""

    def __init__(self, model: Transformer, config, loss=cross_entropy):
        self.model, self.config, self.loss, self.done = model, config, loss, 0
        groups = [
            {"params": [w for w in model.parameters() if w.ndim > 1], "weight_decay": config.weight_decay},
            {"params": [w for w in model.parameters() if w.ndim == 1], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        self.optimiser = torch.optim.AdamW(groups, lr=1.0, betas=config.betas, foreach=False)

    def __call__(self, batch: Batch) -> torch.Tensor:
        """The loss before the update."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.lr_at(self.done)
        self.optimiser.zero_grad()
        loss = self.loss(self.model(batch.inputs), batch)
        loss.backward()
        if self.config.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimiser.step()
        self.done += 1
        return loss.detach()


def gap(model: Transformer, twin: Transformer) -> float:
    """The largest difference between two models' weights."""
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    return max((w - v).abs().max().item() for w, v in pairs)
