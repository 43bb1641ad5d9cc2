"""AdamW for rows: PyTorch's numbers, each row its own rate, betas, decay and clipping."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from twins import stream

from iclkit.fast.adamw import AdamW
from iclkit.training import TrainConfig

SIZE, DECAYING, STEPS = 12, 7, 20

plans = st.builds(
    TrainConfig,
    steps=st.just(STEPS),
    lr=st.sampled_from([1e-3, 0.1]),
    betas=st.sampled_from([(0.9, 0.98), (0.9, 0.999), (0.0, 0.5)]),
    weight_decay=st.sampled_from([0, 0.01, 1.0]),
    warmup=st.sampled_from([0, 7]),
    schedule=st.sampled_from(["constant", "linear", "cosine"]),
    clip=st.sampled_from([None, 0.01, 1, 1e6]),
)


def gradients(count: int, dtype=torch.float64) -> list[torch.Tensor]:
    """Of very different sizes, some exactly zero."""
    drawn = torch.randn(STEPS, count, SIZE, generator=stream(0), dtype=torch.float64) ** 3
    drawn[:, :, 3] = 0.0
    return list(drawn.to(dtype))


def separate(start: torch.Tensor, grads: list[torch.Tensor], plan: TrainConfig) -> torch.Tensor:
    """`torch.optim.AdamW` on one row: its decaying part and the rest as two weights."""
    weights = [torch.nn.Parameter(part.clone()) for part in (start[:DECAYING], start[DECAYING:])]
    groups = [{"params": [w], "weight_decay": d} for w, d in zip(weights, (plan.weight_decay, 0.0))]
    optimiser = torch.optim.AdamW(groups, betas=plan.betas, foreach=False)
    for step, grad in enumerate(grads):
        weights[0].grad, weights[1].grad = grad[:DECAYING].clone(), grad[DECAYING:].clone()
        if plan.clip is not None:
            torch.nn.utils.clip_grad_norm_(weights, plan.clip)
        for group in optimiser.param_groups:
            group["lr"] = plan.lr_at(step)
        optimiser.step()
    return torch.cat(weights).detach()


@settings(max_examples=30, deadline=None)
@given(st.lists(plans, min_size=1, max_size=3))
def test_every_row_is_updated_as_by_pytorch(some):
    start = torch.randn(len(some), SIZE, generator=stream(1), dtype=torch.float64)
    grads, rows = gradients(len(some)), start.clone()
    optimiser = AdamW(rows, DECAYING, some)
    for grad in grads:
        optimiser.step(grad.clone())
    for index, plan in enumerate(some):
        wanted = separate(start[index], [grad[index] for grad in grads], plan)
        torch.testing.assert_close(rows[index], wanted, atol=1e-13, rtol=1e-11)


@pytest.mark.parametrize("count", [1, 2])
def test_float32_stays_within_its_rounding(count):
    plan = TrainConfig(steps=STEPS, lr=0.01, weight_decay=0.1, clip=1.0)
    start = torch.randn(count, SIZE, generator=stream(1))
    grads, rows = gradients(count, torch.float32), start.clone()
    optimiser = AdamW(rows, DECAYING, [plan] * count)
    for grad in grads:
        optimiser.step(grad.clone())
    wanted = separate(start[0], [grad[0] for grad in grads], plan)
    torch.testing.assert_close(rows[0], wanted, atol=1e-6, rtol=1e-6)


def test_a_row_of_nan_leaves_the_others_alone():
    plans = [TrainConfig(steps=STEPS, clip=1.0)] * 3
    start = torch.randn(3, SIZE, generator=stream(1))
    rows, healthy = start.clone(), start.clone()
    ill, well = AdamW(rows, DECAYING, plans), AdamW(healthy, DECAYING, plans)
    for grad in gradients(3, torch.float32):
        well.step(grad.clone())
        grad[1] = float("nan")
        ill.step(grad)
    assert rows[1].isnan().all() and torch.equal(rows[[0, 2]], healthy[[0, 2]])
