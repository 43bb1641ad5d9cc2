"""Checks of chapter 202 on right answers, the stubs, and likely mistakes."""

import torch
from checking import assert_check, solution, stub

from iclkit.checks import c202
from iclkit.predictors import PHASES, phase


def test_distance():
    def by_loop(log_p, log_q):
        total = 0.0
        for p, q in zip(log_p, log_q):
            seen = p > -torch.inf
            total = total + (p[seen].exp() * (p[seen] - q[seen])).sum()
        return total / len(log_p)

    def turned(log_p, log_q):
        return (log_q.exp() * (log_q - log_p)).sum(-1).mean()

    def summed(log_p, log_q):
        return by_loop(log_p, log_q) * len(log_p)

    def no_zeros(log_p, log_q):
        return (log_p.exp() * (log_p - log_q)).sum(-1).mean()

    wrong = [(turned, "KL(q ‖ p)"), (summed, "not the sum"), (no_zeros, "NaN")]
    assert_check(c202.ex1, right=[solution("202", 1), by_loop], stub=stub("202", 1), wrong=wrong)


def test_first_time_or_none():
    def by_run_length(steps, names, wanted, lasting):
        run = 0
        for place, name in enumerate(names):
            run = run + 1 if name == wanted else 0
            if run == lasting:
                return steps[place - lasting + 1]

    def last_step(steps, names, wanted, lasting):
        found = by_run_length(steps, names, wanted, lasting)
        return steps[-1] if found is None else found

    def end_of_stretch(steps, names, wanted, lasting):
        found = by_run_length(steps, names, wanted, lasting)
        return None if found is None else steps[steps.index(found) + lasting - 1]

    def any_look(steps, names, wanted, lasting):
        return by_run_length(steps, names, wanted, 1)

    def place(steps, names, wanted, lasting):
        found = by_run_length(steps, names, wanted, lasting)
        return None if found is None else steps.index(found)

    wrong = [
        (last_step, "censored"),
        (end_of_stretch, "not the last"),
        (any_look, "too short"),
        (place, "place"),
    ]
    assert_check(c202.ex2, right=[solution("202", 2), by_run_length], stub=stub("202", 2), wrong=wrong)


def test_a_rule():
    def nearest(distances, apart):
        return (*PHASES, "undecided")[distances[0].argmin()]

    def sees_twins(distances, apart):
        return phase(distances, apart, alike=0)

    def always_named(distances, apart):
        return PHASES[distances[0, :4].argmin()]

    def shy(distances, apart):
        return "undecided"

    def other_word(distances, apart):
        return "bigram"

    wrong = [
        (nearest, "equally far"),
        (sees_twins, "1-Mem is no different"),
        (always_named, "guesses evenly"),
        (shy, "is called undecided"),
        (other_word, "return one of"),
    ]
    assert_check(c202.ex3, right=[solution("202", 3), phase], stub=stub("202", 3), wrong=wrong)
