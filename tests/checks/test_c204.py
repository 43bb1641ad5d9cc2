"""Checks of chapter 204 on right answers, the stubs, and likely mistakes."""

import torch
from checking import assert_check, solution, stub

from iclkit.checks import c204


def test_swap_hook():
    def with_cat(vectors):
        return lambda tensor, hook: torch.cat([tensor[:, :-1], vectors[:, None]], 1)

    def everywhere(vectors):
        return lambda tensor, hook: vectors[:, None].expand_as(tensor)

    def first(vectors):
        return lambda tensor, hook: torch.cat([vectors[:, None], tensor[:, 1:]], 1)

    def added(vectors):
        return lambda tensor, hook: torch.cat([tensor[:, :-1], (tensor[:, -1] + vectors)[:, None]], 1)

    def in_place(vectors):
        def hook(tensor, hook):
            tensor[:, -1] = vectors

        return hook

    wrong = [
        (everywhere, "last position alone"),
        (first, "not the first"),
        (added, "do not add"),
        (in_place, "in place"),
        (lambda vectors: vectors, "return a function"),
    ]
    assert_check(c204.ex1, right=[solution("204", 1), with_cat], stub=stub("204", 1), wrong=wrong)


def test_posterior():
    def by_loop(tokens, log_P):
        evidence = torch.zeros(len(log_P), dtype=torch.float64)
        for now, after in zip(tokens[:-1], tokens[1:]):
            evidence += log_P[:, now, after]
        return evidence.softmax(0)

    def backwards(tokens, log_P):
        return by_loop(tokens.flip(0), log_P)

    def mean(tokens, log_P):
        return log_P[:, tokens[:-1], tokens[1:]].mean(1).softmax(0)

    def no_softmax(tokens, log_P):
        return log_P[:, tokens[:-1], tokens[1:]].sum(1)

    def still_log(tokens, log_P):
        return by_loop(tokens, log_P).log()

    wrong = [
        (backwards, "where a transition begins"),
        (mean, "adds up"),
        (no_softmax, "sums to one"),
        (still_log, "exp at the end"),
    ]
    assert_check(c204.ex2, right=[solution("204", 2), by_loop], stub=stub("204", 2), wrong=wrong)


def test_between():
    def one_minus_within(x, label):
        within = sum((x[label == k] - x[label == k].mean(0)).square().sum() for k in label.unique())
        return 1 - within / (x - x.mean(0)).square().sum()

    def within(x, label):
        return 1 - one_minus_within(x, label)

    def ratio(x, label):
        share = one_minus_within(x, label)
        return share / (1 - share)

    def unweighted(x, label):
        means = torch.stack([x[label == k].mean(0) for k in label.unique()])
        return means.var(0, correction=0).sum() / x.var(0, correction=0).sum()

    def not_centred(x, label):
        means = torch.stack([x[label == k].mean(0) for k in label.unique()])
        return means[label].square().sum() / x.square().sum()

    wrong = [
        (within, "within the classes"),
        (ratio, "total variance"),
        (unweighted, "as often"),
        (not_centred, "overall mean"),
    ]
    assert_check(c204.ex3, right=[solution("204", 3), one_minus_within], stub=stub("204", 3), wrong=wrong)


def test_mean_vectors():
    def by_one_hot(phi, chain, K):
        member = torch.nn.functional.one_hot(chain, K).float()
        return member.T @ phi / member.sum(0)[:, None]

    def sums(phi, chain, K):
        return torch.nn.functional.one_hot(chain, K).float().T @ phi

    def all_divided(phi, chain, K):
        return sums(phi, chain, K) / len(phi)

    def one_mean(phi, chain, K):
        return phi.mean(0).repeat(K, 1)

    wrong = [(sums, "divide each sum"), (all_divided, "its own number"), (one_mean, "not that of all")]
    assert_check(c204.ex4, right=[solution("204", 4), by_one_hot], stub=stub("204", 4), wrong=wrong)
