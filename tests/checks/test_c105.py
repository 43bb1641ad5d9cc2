"""Checks of chapter 105: two right answers pass, the stub and three wrong ones do not."""

import torch
from checking import assert_check, solution, stub

from iclkit import checks


def test_ex1_mean_ablation():
    def by_where(z, reference, head):
        chosen = (torch.arange(z.shape[2]) == head)[:, None]
        return torch.where(chosen, reference.mean(0, keepdim=True), z)

    def over_places(z, reference, head):
        z = z.clone()
        z[:, :, head] = reference.mean((0, 1))[head]
        return z

    def all_heads(z, reference, head):
        return reference.mean(0).expand_as(z)

    def in_place(z, reference, head):
        z[:, :, head] = reference[:, :, head].mean(0)
        return z

    wrong = [(over_places, "places"), (all_heads, "all heads"), (in_place, "in place")]
    assert_check(checks.c105.ex1, [solution("105", 1), by_where], stub("105", 1), wrong)


def test_ex2_two_ends():
    def by_means(before, after):
        n = len(before)
        new, old = ((x[n - n // 8 :].mean(), x[n // 8 : n // 4].mean()) for x in (after, before))
        return torch.stack([new[0] - old[0], old[1] - new[1]])

    def wrong_sign(before, after):
        n, rise = len(before), after - before
        return torch.stack([rise[n - n // 8 :].mean(), rise[n // 8 : n // 4].mean()])

    def exchanged(before, after):
        return by_means(after, before)

    def first_eighth(before, after):
        n, rise = len(before), after - before
        return torch.stack([rise[n - n // 8 :].mean(), -rise[: n // 8].mean()])

    wrong = [(wrong_sign, "wrong sign"), (exchanged, "before and after"), (first_eighth, "n/8 … n/4")]
    assert_check(checks.c105.ex2, [solution("105", 2), by_means], stub("105", 2), wrong)


def test_ex3_what_is_enough():
    def masked(model, kept):
        def silence(z, hook):
            on = torch.tensor([(hook.layer(), head) in kept for head in range(z.shape[2])])
            return z * on[:, None]

        hooks = [(("z", layer), silence) for layer in range(model.config.n_layers)]
        return model.hooked(hooks)

    def removes_kept(model, kept):
        every = [(layer, head) for layer in range(2) for head in range(model.config.n_heads)]
        return masked(model, [head for head in every if head not in kept])

    def one_layer(model, kept):
        return masked(model, [*kept, *((0, head) for head in range(model.config.n_heads))])

    def keeps_nothing(model, kept):
        return masked(model, [])

    wrong = [
        (removes_kept, "the ones removed"),
        (one_layer, "only layer 1"),
        (keeps_nothing, "every head is removed"),
        (lambda model, kept: model(torch.zeros(3, 8, dtype=torch.long)), "return a function"),
    ]
    assert_check(checks.c105.ex3, [solution("105", 3), masked], stub("105", 3), wrong)
