"""Records of chapters 401 and 402 made by hand, as their claims say; arguments put something else in."""

import numpy as np

from iclkit.records.claims import c401
from iclkit.records.recipes import coopetition_301, levers_401, markov_401, omniglot_301, starts_304

LOOKS = 13


class Made(dict):
    """Arrays with a `meta`, as a record."""

    def __init__(self, arrays, configs=()):
        super().__init__(arrays)
        self.meta = {"config": list(configs)}


def runs(flip=0.1, peak=0.8, icl=0.9, ciwl=0.95, seeds=3):
    """Accuracies `[seed look 5]`: Flip and ICL rise to their peaks, Flip goes to `flip`, CIWL to `ciwl`."""
    found = np.full((seeds, LOOKS, 5), 0.5)
    found[:, 4, c401.FLIP], found[:, 4, c401.ICL] = peak, icl
    found[:, 5:, c401.FLIP], found[:, 5:, c401.CIWL] = flip, ciwl
    return found


def of_variants(recipe, **values):
    """A record of all variants of a recipe; `values` by name, with _ for what a word may not hold."""
    configs = recipe.configs("book")
    chosen = [values.get(named(config["variant"]), runs()) for config in configs]
    return Made({"accuracy": np.stack(chosen)}, configs)


def named(variant):
    return "".join(letter if letter.isalnum() else "_" for letter in variant)


def levers(**values):
    stays = {"matched": runs(0.9), "4_layers_matched": runs(0.9), "decay_everywhere_0_1": runs(0.5)}
    stays |= {"classes_800": runs(icl=0.7), "classes_3200": runs(icl=0.95), "exemplars_5": runs(0.3)}
    stays |= {"bursty_0_5": runs(icl=0.7), "zipf_1_0": runs(0.4), "forbidden": runs(0.1, 0.45, 0.5)}
    return of_variants(levers_401, **stays | values)


def drawings(gain=0.5):
    matched = {f"{name}__matched": runs(0.1 + gain) for name in ("characters", "composites")}
    return of_variants(omniglot_301, **matched)


def starts(*peaks):
    accuracy = np.stack([runs(peak=peak, seeds=3) for peak in peaks])
    accuracy[..., 0, c401.FLIP] = 0.4
    ages = np.array([0, 2000, 9000][: len(peaks)])
    return Made({"start_accuracy": accuracy, "age": ages}, starts_304.configs("book")[: len(peaks)])


def chains(**leans):
    """A record of the Markov levers with these leans by variant, else `plain`."""
    configs = markov_401.configs("book")
    apart = np.zeros((len(configs), 3, 2, 5, 5))
    apart[:, :, 1, 1, 3] = 0.5
    distances = np.zeros((len(configs), 3, LOOKS, 2, 5))
    for number, config in enumerate(configs):
        distances[number, :, :, 1, 3] = 0.5 * leans.get(named(config["variant"]), 0.0)
    return Made({"distances": distances, "apart": apart}, configs)


def guided(**records):
    """All records of the guide by name; `records` replace some."""
    ends = {"matched_401": 0.9, "coopetition_301": 0.1}
    config = coopetition_301.configs("book")
    made = {name: Made({"accuracy": runs(flip, seeds=5)}, config) for name, flip in ends.items()}
    made |= {"levers_401": levers(), "omniglot_301": drawings(), "markov_401": chains()}
    return made | {"starts_304": starts(0.7, 0.9, 0.5)} | records
