"""Make a record from its recipe: piece by piece, each saved when done, so that a kill loses one piece."""

import hashlib
import io
import json
import os
import traceback
from collections.abc import Iterable
from pathlib import Path
from time import monotonic
from types import ModuleType

import numpy as np

from iclkit.environment import progress_bar
from iclkit.records.recipes import Piece, find, source
from iclkit.records.store import Record, save, write_whole


class MakingError(RuntimeError):
    """Some pieces of a recipe failed; the message names them, and the others are kept."""


def cache_folder() -> Path:
    """Where checkpoints and finished pieces live: `ICLKIT_CACHE`, or ~/.cache/iclkit."""
    return Path(os.environ.get("ICLKIT_CACHE") or Path.home() / ".cache" / "iclkit")


def make(
    recipe: str | ModuleType,
    scale: str = "book",
    seeds: Iterable[int] | None = None,
    folder: Path | None = None,
    progress: bool | None = None,
) -> Record:
    """Make a record and write it, as package data or into `folder`; what is done already is not done again.

    Prints its cost first. Raises `MakingError` when a piece fails, after the others are done and saved.
    """
    recipe = find(recipe) if isinstance(recipe, str) else recipe
    if scale not in ("book", "paper"):
        raise ValueError(f"scale must be book or paper; got {scale!r}")
    if seeds is not None and not (seeds := tuple(seeds)):
        raise ValueError(f"seeds lists at least one; {recipe.NAME} has {', '.join(map(str, recipe.SEEDS))}")
    seeds, configs = tuple(recipe.SEEDS if seeds is None else seeds), recipe.configs(scale)
    work = [(config, seed) for config in configs for seed in seeds]
    files = [piece_file(recipe, config, seed) for config, seed in work]
    done = sum(_read(file) is not None for file in files)
    print(f"{recipe.NAME} at {scale} scale: {recipe.COST}; {done} of {len(work)} pieces are done", flush=True)
    pieces, seconds, failed = [], 0.0, []
    for (config, seed), file in zip(progress_bar(work, progress), files):
        try:
            arrays, spent = _read(file) or _work(recipe, config, seed, file)
        except Exception:
            failed.append(f"config {json.dumps(config)}, seed {seed}:\n{traceback.format_exc()}")
            continue
        pieces.append(Piece(config, seed, arrays))
        seconds += spent
    if failed:
        raise MakingError(
            f"{len(failed)} of {len(work)} pieces of {recipe.NAME} failed; the others are kept in "
            f"{files[0].parent}, and making it again does only what failed.\n" + "\n".join(failed)
        )
    meta = {
        "config": configs,
        "seeds": list(seeds),
        "seconds": round(seconds, 1),
        "recipe": recipe.__name__,
        "recipe_sha256": hashlib.sha256(source(recipe).encode()).hexdigest(),
        "scale": scale,
    }
    return save(recipe.NAME, recipe.assemble(pieces), meta, folder)


def piece_file(recipe: ModuleType, config: dict, seed: int) -> Path:
    """The file of one piece, named by a hash of config, seed and the recipe's text."""
    key = json.dumps([source(recipe), config, seed], sort_keys=True)
    return cache_folder() / "pieces" / recipe.NAME / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"


def _work(recipe: ModuleType, config: dict, seed: int, file: Path) -> tuple[dict[str, np.ndarray], float]:
    start = monotonic()
    arrays = {name: np.asarray(array) for name, array in recipe.unit(config, seed).items()}
    seconds, buffer = monotonic() - start, io.BytesIO()
    np.savez_compressed(buffer, _seconds=seconds, **arrays)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, buffer.getvalue())
    return arrays, seconds


def _read(file: Path) -> tuple[dict[str, np.ndarray], float] | None:
    """The arrays and seconds of a finished piece; None when it is missing or unreadable: it is made again."""
    try:
        with np.load(file, allow_pickle=False) as npz:
            arrays = {name: npz[name] for name in npz.files}
            return arrays, float(arrays.pop("_seconds"))
    except Exception:
        return None
