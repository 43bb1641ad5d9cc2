"""The checks of chapter 103 accept right answers and name the mistakes of wrong ones."""

import torch
from checking import assert_check, solution, stub

from iclkit import checks
from iclkit.records.recipes.by_hand_103 import hand_built


def test_look_back():
    def loop(distance, n_ctx):
        block = torch.zeros(n_ctx, n_ctx)
        for place in range(distance, n_ctx):
            block[place, place - distance] = 1
        return block

    assert_check(
        checks.c103.ex1,
        right=[solution("103", 1), loop],
        stub=stub("103", 1),
        wrong=[
            (lambda distance, n_ctx: loop(distance, n_ctx).T, "looks ahead"),
            (lambda distance, n_ctx: torch.eye(n_ctx).roll(-distance, 1), "ask for nothing"),
            (lambda distance, n_ctx: torch.eye(n_ctx), "main diagonal"),
        ],
    )


def test_turn():
    turn = solution("103", 2)

    @torch.no_grad()
    def by_name(model, R):
        for name, weight in model.named_parameters():
            reads = name.endswith(("W_Q", "W_K", "W_V", "W_U"))
            weight.copy_(R.T @ weight if reads else weight @ R)

    def turn_back(names, change):
        @torch.no_grad()
        def wrong(model, R):
            turn(model, R)
            for name, weight in model.named_parameters():
                if name.endswith(names):
                    weight.copy_(change(weight, R))

        return wrong

    assert_check(
        checks.c103.ex2,
        right=[turn, by_name],
        stub=stub("103", 2),
        wrong=[
            (lambda model, R: model, "W_E is unchanged"),
            (turn_back("W_O", lambda W, R: W @ R.T), "writes to the stream, but is unchanged"),
            (turn_back("W_U", lambda W, R: R @ R @ W), "needs the transpose"),
            (turn_back("W_U", lambda W, R: R @ W), "W_U reads from the stream, but is unchanged"),
            (lambda model, R: turn(model, R.T), "turned the other way"),
            (turn_back("W_pos", lambda W, R: W @ R.T), "writes to the stream, but is unchanged"),
        ],
    )


def test_resting_head():
    right = solution("103", 3)

    def by_hand():
        W_K, W_V = right()
        W_K[0] = 0.6
        return W_K, W_V

    def changed(W_K_of_BOS=0.5, W_V_of_BOS=0.0):
        def head():
            W_K, W_V = right()
            W_K[0], W_V[0, 0] = W_K_of_BOS, W_V_of_BOS
            return W_K, W_V

        return head

    assert_check(
        checks.c103.ex3,
        right=[right, by_hand],
        stub=stub("103", 3),
        wrong=[
            (changed(W_K_of_BOS=0.0), "in the first copy BOS gets"),
            (changed(W_K_of_BOS=1.0), "still rests on BOS"),
            (changed(W_V_of_BOS=1.0), "BOS is being predicted"),
            (lambda: right()[::-1], "in the first copy"),
            (lambda: (torch.zeros(64, 192), torch.zeros(64, 192)), "shape [192, 64]"),
            (lambda: None, "return two tensors"),
            (lambda: right()[0], "return two tensors"),
        ],
    )


def test_pointer_heads():
    right = solution("103", 4)

    def stronger():
        duplicate, pointer = right()
        return duplicate, pointer | {"W_Q": 1.5 * pointer["W_Q"]}

    def by_notes():
        names = ("W_Q", "W_K", "W_V", "W_O")
        attns = [block.attn for block in hand_built().blocks]
        return [{name: getattr(attn, name)[0].detach() for name in names} for attn in attns]

    def without_shift():
        duplicate, pointer = right()
        W_Q = pointer["W_Q"].clone()
        W_Q[128:192] = W_Q[128:192].roll(-1, 1)
        return duplicate, pointer | {"W_Q": W_Q}

    def lacking():
        duplicate, pointer = right()
        return duplicate, {name: weight for name, weight in pointer.items() if name != "W_O"}

    def swapped():
        return right()[::-1]

    assert_check(
        checks.c103.ex4,
        right=[right, stronger],
        stub=stub("103", 4),
        wrong=[
            (by_notes, "not by pointers"),
            (without_shift, "asks for s instead"),
            (lacking, "needs W_O"),
            (swapped, "finds nothing"),
            (lambda: None, "return two dictionaries"),
            (lambda: right()[0], "return two dictionaries"),
        ],
    )
