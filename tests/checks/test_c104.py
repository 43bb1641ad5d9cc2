"""Checks of chapter 104 on right answers, the stubs, and likely mistakes."""

import torch
from checking import assert_check, solution, stub

from iclkit.checks import c104
from iclkit.tasks import Repeats, generator, repeated_tokens


def by_columns(losses):
    column, n = losses.mean(0), losses.shape[1]
    return sum(column[n - n // 8 :]) / (n // 8) - sum(column[n // 8 : n // 4]) / (n // 4 - n // 8)


def test_icl_score():
    def turned(losses):
        return -by_columns(losses)

    def from_the_start(losses):
        n = losses.shape[1]
        return losses[:, -(n // 8) :].mean() - losses[:, : n // 8].mean()

    def one_sequence(losses):
        return by_columns(losses[:1])

    wrong = [(turned, "sign"), (from_the_start, "not the first eighth"), (one_sequence, "all sequences")]
    assert_check(c104.ex1, right=[solution("104", 1), by_columns], stub=stub("104", 1), wrong=wrong)


def test_smeared_keys():
    def by_loop(k, a):
        keys = [k[:, 0]]
        for t in range(1, k.shape[1]):
            keys.append(torch.sigmoid(a) * k[:, t] + torch.sigmoid(-a) * k[:, t - 1])
        return torch.stack(keys, 1)

    def exchanged(k, a):
        return by_loop(k, -a)

    def around(k, a):
        return torch.sigmoid(a) * k + torch.sigmoid(-a) * k.roll(1, 1)

    def ahead(k, a):
        return by_loop(k.flip(1), a).flip(1)

    wrong = [(exchanged, "exchanged"), (around, "roll goes around"), (ahead, "future")]
    assert_check(c104.ex2, right=[solution("104", 2), by_loop], stub=stub("104", 2), wrong=wrong)


def test_a_probe_that_no_fixed_offset_passes():
    def spread(batch, seed):
        task = Repeats(min_period=6, max_period=20, batch_size=batch, placement="spread", copies=3)
        return task.batch(seed, 0).inputs

    def one_period(batch, seed):
        return repeated_tokens(64, period=20, copies=3, batch=batch, seed=seed)

    def no_repeat(batch, seed):
        return repeated_tokens(64, period=40, copies=1, batch=batch, seed=seed)

    def no_bos(batch, seed):
        return torch.randint(1, 8, (batch, 60), generator=generator(seed))

    def one_seed(batch, seed):
        return Repeats(batch_size=batch).batch(0, 0).inputs

    wrong = [
        (one_period, "always looks 19 places back has prefix matching 1.00"),
        (no_repeat, "stood there before"),
        (no_bos, "BOS"),
        (one_seed, "same tokens"),
    ]
    assert_check(c104.ex3, right=[solution("104", 3), spread], stub=stub("104", 3), wrong=wrong)
