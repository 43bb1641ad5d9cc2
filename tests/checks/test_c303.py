"""Checks of chapter 303 on right answers, the stubs, and likely mistakes."""

import torch
from checking import assert_check, solution, stub

from iclkit.checks import c303


def test_induction_strength_from_a_row():
    def by_loop(row, place):
        found = [r[:, 1 + 2 * int(p)] - r[:, 3 - 2 * int(p)] for r, p in zip(row, place)]
        return sum(found) / len(found)

    def other_way(row, place):
        return -by_loop(row, place)

    def exemplars(row, place):
        return by_loop(torch.roll(row, 1, -1), place)

    def always_second(row, place):
        return (row[..., 3] - row[..., 1]).mean(0)

    def always_first(row, place):
        return -always_second(row, place)

    wrong = [(other_way, "sign"), (exemplars, "at 1 and 3"), (always_second, "own correct place")]
    wrong += [(always_first, "not always the correct one")]
    assert_check(c303.ex1, right=[solution("303", 1), by_loop], stub=stub("303", 1), wrong=wrong)


def layer_of(name):
    if name.startswith(("pairs", "positions")):
        return -1
    return int(name.split(".")[1]) if name.startswith("blocks") else 10**6


def test_two_models_spliced():
    def by_number(first, second, boundary):
        return {name: (first if layer_of(name) < boundary else second)[name] for name in first}

    def exchanged(first, second, boundary):
        return by_number(second, first, boundary)

    def one_too_many(first, second, boundary):
        return by_number(first, second, boundary + 1)

    def no_embeddings(first, second, boundary):
        return {n: (first if 0 <= layer_of(n) < boundary else second)[n] for n in first}

    wrong = [(exchanged, "exchanged"), (one_too_many, "counts layers"), (no_embeddings, "embeddings")]
    assert_check(c303.ex2, right=[solution("303", 2), by_number], stub=stub("303", 2), wrong=wrong)


def test_a_graft_is_a_whole_dictionary_and_its_halves_are_left_alone():
    def only_below(first, second, boundary):
        return {name: weight for name, weight in first.items() if layer_of(name) < boundary}

    def written_over(first, second, boundary):
        for name in second:
            if layer_of(name) < boundary:
                second[name].copy_(first[name])
        return second

    def taken_over(first, second, boundary):
        second.update(only_below(first, second, boundary))
        return second

    def listed(first, second, boundary):
        return list(taken_over(first, second, boundary).items())

    assert "blocks.1.attn.W_Q" in c303.ex2.result(only_below).message
    assert "in place" in c303.ex2.result(written_over).message
    assert "of type list" in c303.ex2.result(listed).message
    assert c303.ex2.result(taken_over).passed


def test_layers_are_numbers():
    def as_text(first, second, boundary):
        return {n: (first if c303.layer_text(n) < str(boundary) else second)[n] for n in first}

    assert "as a number" in c303.ex2.result(as_text).message


def test_whose_fall_it_is():
    def by_list(flip):
        own = [float(flip[i, i]) for i in range(len(flip))]
        at = own.index(max(own))
        return torch.tensor([own[at] - float(flip[-1, at]), own[at] - float(flip[at, -1])])

    def exchanged(flip):
        return by_list(flip).flip(0)

    def gains(flip):
        return -by_list(flip)

    def top_of_all(flip):
        first, second = divmod(int(flip.argmax()), len(flip))
        return flip[first, second] - torch.stack([flip[-1, second], flip[first, -1]])

    def both(flip):
        return (flip.diagonal().max() - flip[-1, -1]).expand(2)

    wrong = [
        (exchanged, "exchanged"),
        (gains, "positive"),
        (top_of_all, "diagonal"),
        (both, "one half alone"),
    ]
    assert_check(c303.ex3, right=[solution("303", 3), by_list], stub=stub("303", 3), wrong=wrong)
