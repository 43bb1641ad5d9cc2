"""Make a record from its recipe: piece by piece, each saved when done, so that a kill loses one piece."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from iclkit.environment import cache_folder
from iclkit.records.pieces import Job, key, read
from iclkit.records.recipes import Piece, find, source
from iclkit.records.store import Record, save
from iclkit.sweep import SweepError, complete

MakingError = SweepError


def make(
    recipe: str | ModuleType,
    scale: str = "book",
    seeds: Iterable[int] | None = None,
    folder: Path | None = None,
    progress: bool | None = None,
    jobs: int | None = 1,
    finished: bool = False,
) -> Record:
    """Make a record and write it, as package data or into `folder`; what is done already is not done again.

    Prints its cost first. `jobs` are worker processes; 1 stays in this one. `finished` does nothing new: the
    record is made of the pieces there are, and its meta say how many are `missing`.
    Raises `MakingError` when a piece fails, after the others are done and saved, and when the pieces there
    are do not make a record.
    """
    recipe = find(recipe) if isinstance(recipe, str) else recipe
    if scale not in ("book", "paper"):
        raise ValueError(f"scale must be book or paper; got {scale!r}")
    if seeds is not None and not (seeds := tuple(seeds)):
        raise ValueError(f"seeds lists at least one; {recipe.NAME} has {', '.join(map(str, recipe.SEEDS))}")
    seeds, configs = tuple(recipe.SEEDS if seeds is None else seeds), recipe.configs(scale)
    work = [(config, seed) for config in configs for seed in seeds]
    calls = [Job(piece_file(recipe, *it), it, dict(zip(("config", "seed"), it))) for it in work]
    done = sum(read(job.file) is not None for job in calls)
    print(f"{recipe.NAME} at {scale} scale: {recipe.COST}; {done} of {len(work)} pieces are done", flush=True)
    if finished:
        calls = [job for job in calls if read(job.file) is not None]
        if not calls:
            raise MakingError(f"no piece of {recipe.NAME} is finished; make it without --finished")
        configs = [config for config in configs if any(config == job.arguments[0] for job in calls)]
    found = complete(recipe.unit, calls, f"pieces of {recipe.NAME}", jobs, progress)
    meta = {
        "config": configs,
        "seeds": list(seeds),
        "seconds": round(sum(piece.meta["seconds"] for piece in found), 1),
        "recipe": recipe.__name__,
        "recipe_sha256": hashlib.sha256(source(recipe).encode()).hexdigest(),
        "scale": scale,
    }
    if missing := len(work) - len(calls):
        meta["missing"] = missing
    pieces = [Piece(*job.arguments, dict(piece)) for job, piece in zip(calls, found)]
    try:
        arrays = recipe.assemble(pieces)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if not missing:
            raise
        raise MakingError(
            f"{len(calls)} of {len(work)} pieces of {recipe.NAME} do not make a record "
            f"({type(error).__name__}: {error}); make the others without --finished, "
            "or name --seeds that are done"
        ) from error
    return save(recipe.NAME, arrays, meta, folder)


def piece_file(recipe: ModuleType, config: dict, seed: int) -> Path:
    """The file of one piece, named by a hash of config, seed and the recipe's text."""
    return cache_folder() / "pieces" / recipe.NAME / f"{key(source(recipe), config, seed)}.npz"
