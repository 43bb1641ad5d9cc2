"""AdamW for M models in one buffer, each with its own learning rate, decay and clipping."""

import torch
from jaxtyping import Float
from torch import Tensor


class AdamW:
    """m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²,   w ← w (1 − η λ) − η m̂ / (√v̂ + 1e-8), a row a model.

    Only the first `decaying` numbers of a row decay. `factors`, one for each number, multiply η; `shrink`, one
    for each that decays, multiplies λ. Source:
    Loshchilov & Hutter 2019 (https://arxiv.org/abs/1711.05101); `torch.optim.AdamW`'s numbers.
    """

    def __init__(
        self,
        rows: Float[Tensor, "model size"],
        decaying: int,
        configs: list,
        factors: Tensor | None = None,
        shrink: Tensor | None = None,
    ):
        self.rows, self.decaying, self.configs, self.steps = rows, decaying, configs, 0
        self.factors, self.shrink = factors, shrink
        if factors is not None:
            self.shrink = factors[:, :decaying] * (1 if shrink is None else shrink)
        self.clock = torch.zeros(1, dtype=torch.int64, device=rows.device)
        self.m, self.v, self.work = (torch.zeros_like(rows) for _ in range(3))
        column = lambda values: torch.tensor(values, dtype=torch.float64, device=rows.device)[:, None]  # noqa: E731
        self.beta1, self.beta2 = (column([c.betas[i] for c in configs]) for i in (0, 1))
        self.decay = column([float(c.weight_decay) for c in configs])
        self.clip = column([float("inf") if c.clip is None else float(c.clip) for c in configs])
        self.clips = any(c.clip is not None for c in configs)
        self.alone = len(configs) == 1 and not rows.is_cuda and self.shrink is None
        self.table = self.rates(range(configs[0].steps)) if rows.is_cuda else None

    def rates(self, steps) -> Float[Tensor, "step model"]:
        """Learning rates of these updates."""
        rates = [[config.lr_at(step) for config in self.configs] for step in steps]
        return torch.tensor(rates, dtype=torch.float64, device=self.rows.device)

    def step(self, grads: Float[Tensor, "model size"]) -> None:
        """The next update of every row, at its learning rate by then; clips `grads` in place."""
        if self.clips:
            norm = torch.linalg.vector_norm(grads, dim=1, keepdim=True)
            grads.mul_((self.clip / (norm + 1e-6)).clamp_(max=1.0).to(grads.dtype))
        self.steps += 1
        self.clock.add_(1)
        (self.update_one if self.alone else self.update)(grads)

    def resume(self, steps: int) -> None:
        """Go on as after `steps` updates; the moments are the caller's to fill."""
        self.steps = steps
        self.clock.fill_(steps)

    def update(self, grads: Tensor) -> None:
        """Everything that differs between models or updates stays on the device, as a tensor."""
        cast = lambda column: column.to(grads.dtype)  # noqa: E731
        on_host = self.table is None
        lr = (self.rates([self.steps - 1]) if on_host else self.table.index_select(0, self.clock - 1)).T
        self.m.mul_(cast(self.beta1)).addcmul_(grads, cast(1 - self.beta1))
        torch.mul(grads, grads, out=self.work)
        self.v.mul_(cast(self.beta2)).addcmul_(self.work, cast(1 - self.beta2))
        torch.div(self.v, cast(1 - self.beta2**self.clock), out=self.work).sqrt_().add_(1e-8)
        torch.div(self.m, self.work, out=self.work)
        if self.factors is not None:
            self.work.mul_(self.factors)
        less = cast(1 - lr * self.decay) if self.shrink is None else 1 - cast(lr * self.decay) * self.shrink
        self.rows[:, : self.decaying].mul_(less)
        self.rows.addcmul_(self.work, cast(-lr / (1 - self.beta1**self.clock)))

    def update_one(self, grads: Tensor) -> None:
        """The same for one model, its numbers being plain numbers: fewer passes."""
        (config,) = self.configs
        lr, (beta1, beta2) = config.lr_at(self.steps - 1), config.betas
        self.m.lerp_(grads, 1 - beta1)
        self.v.mul_(beta2).addcmul_(grads, grads, value=1 - beta2)
        torch.div(self.v, 1 - beta2**self.steps, out=self.work).sqrt_().add_(1e-8)
        self.rows[:, : self.decaying].mul_(1 - lr * config.weight_decay)
        self.rows.addcdiv_(self.m, self.work, value=-lr / (1 - beta1**self.steps))
