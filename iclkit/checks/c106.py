"""Checks of chapter 106: the vote, the longest match, why the model is so sure, a task without holes."""

import torch

from iclkit.checks import Wrong, exercise, same
from iclkit.circuits.scores import earlier_occurrences
from iclkit.tasks import Repeats, generator

NEAR, LATE, LEAST = 8, 40, 0.02


@exercise(seconds=5)
def ex1(answer):
    """Votes `[vocab]` of what followed earlier occurrences of the last token of `tokens [seq]`."""
    for seed in range(6):
        tokens = torch.randint(1, 6, (20,), generator=generator(106, 1, seed))
        earlier = [t for t in range(19) if tokens[t] == tokens[19]]
        followers = [tokens[t + 1] for t in earlier]
        same(
            answer(tokens, 8),
            ballot(followers) / len(followers),
            name="the vote tensor",
            mistakes={
                "shares are asked for, not counts: divide by the number of occurrences": ballot(followers),
                "count what followed, not what stood before": ballot([tokens[t - 1] for t in earlier if t])
                / max(1, sum(t > 0 for t in earlier)),
                "every earlier occurrence votes, not the last alone": ballot(followers[-1:]),
                "count the tokens that follow the last token's occurrences, not all tokens": ballot(tokens)
                / 20,
            },
        )
    alone = answer(torch.tensor([1, 2, 3]), 8)
    same(alone, torch.zeros(8), name="the vote tensor for a token that never stood there before")
    return "shares over followers, on six strings and for a new token"


def ballot(tokens):
    return torch.bincount(torch.as_tensor(tokens, dtype=torch.long), minlength=8).float()


@exercise(seconds=5)
def ex2(answer):
    """The token after the earlier place that agrees with the end of `tokens [seq]` the longest."""
    # Four symbols agree often by chance: a mistake is named only if it explains the answers to all strings.
    strings = [torch.randint(1, 5, (24,), generator=generator(106, 2, seed)) for seed in range(30)]
    answers = [answer(tokens) for tokens in strings]
    wants, slips = [], {}
    for tokens in strings:
        keys = range(1, 24)
        lengths = [agreement(tokens.tolist(), key) for key in keys]
        first, last = max(lengths), [key for key, n in zip(keys, lengths) if n][-1]
        best = [key for key, n in zip(keys, lengths) if n == first]
        wants.append(tokens[best[-1]])
        for slip, value in {
            "among equally long matches take the latest, not the first": tokens[best[0]],
            "compare more than one token: this is the last occurrence": tokens[last],
            "the token that stands at the key, not the one before it": tokens[best[-1] - 1],
        }.items():
            slips.setdefault(slip, []).append(value)
    slips = {slip: values for slip, values in slips.items() if all(map(agrees, answers, values))}
    for place, (tokens, said, want) in enumerate(zip(strings, answers, wants)):
        mistakes = {slip: values[place] for slip, values in slips.items()}
        same(said, want, name=f"your answer to {tokens.tolist()}", mistakes=mistakes)
    same(answer(torch.tensor([1, 2, 3])), 0, name="the token when nothing matches")
    return "the longest match, and the latest among equals, on 30 strings"


def agrees(said, value) -> bool:
    """Is the answer this token? An answer that is no number agrees with nothing."""
    try:
        return int(said) == int(value)
    except (TypeError, ValueError, RuntimeError):
        return False


def agreement(symbols: list[int], key: int) -> int:
    """How many tokens before `key` agree with the end of the string."""
    length = 0
    while length < key and symbols[key - 1 - length] == symbols[-1 - length]:
        length += 1
    return length


@exercise(seconds=5)
def ex3(answer):
    """Share of the last continuation: softmax of two logits, gain times attention each."""
    for seed in range(4):
        random = generator(106, 3, seed)
        first, last = torch.rand(5, generator=random) / 2, torch.rand(5, generator=random) / 2
        gain = 3.0 + 2 * seed
        same(
            answer(first, last, gain),
            torch.stack([first, last]).mul(gain).softmax(0)[1],
            name="the share",
            mistakes={
                "this is the share of the first; the last is asked for": torch.sigmoid(gain * (first - last)),
                "this is the share of attention; the softmax comes after the gain": last / (first + last),
                "the gain is missing": torch.sigmoid(last - first),
            },
        )
    return "the softmax of two logits, for four gains"


@exercise(seconds=10)
def ex4(answer):
    """A `Repeats` task in which near keys and late keys are needed."""
    task = answer()
    if not isinstance(task, Repeats):
        raise Wrong(f"return a Repeats task, not {type(task).__name__}")
    if (task.vocab, task.length) != (64, 64):
        raise Wrong(f"the models read vocab 64 and length 64; this task has {task.vocab} and {task.length}")
    near, late = needed_keys(task)
    if near < LEAST:
        raise Wrong(
            f"only {near:.1%} of look-ups have their first right key fewer than {NEAR} back, "
            f"at least {LEAST:.0%} should; shorten periods"
        )
    if late < LEAST:
        raise Wrong(
            f"only {late:.1%} of look-ups have their first right key at {LATE} or later, "
            f"at least {LEAST:.0%} should; move the strings"
        )
    return f"{near:.0%} of look-ups need a near key, {late:.0%} a late one"


def needed_keys(task: Repeats) -> tuple[float, float]:
    """Shares of look-ups whose earliest right key is near, and late."""
    near, late, count = 0, 0, 0
    for step in range(8):
        batch = task.batch(106, step)
        after = earlier_occurrences(batch.inputs).roll(1, 2)
        after[:, :, 0] = False
        right = after & (batch.inputs[:, None, :] == batch.targets[:, :, None])
        key, query = right.float().argmax(2), torch.arange(batch.inputs.shape[1])
        some = right.any(2)
        count += some.sum().item()
        near += (some & (query - key < NEAR)).sum().item()
        late += (some & (key >= LATE)).sum().item()
    return near / max(count, 1), late / max(count, 1)
