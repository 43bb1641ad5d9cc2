"""Records on disk: NAME.npz (no pickle) and NAME.json, which holds its hash and where it came from."""

import hashlib
import io
import json
import os
import platform
import zipfile
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"
MADE_WITH = ("iclkit", "torch", "numpy")
KEYS = ("config", "seeds", "versions", "seconds", "recipe", "scale")


class RecordError(Exception):
    """A record is missing or damaged; the message names the command that makes it anew."""


class Record(Mapping):
    """Arrays by name, read only, and `meta`: config, seeds, versions, seconds, recipe, scale, sha256."""

    def __init__(self, name: str, arrays: dict[str, np.ndarray], meta: dict):
        self.name, self.meta, self._arrays = name, meta, dict(arrays)
        for array in self._arrays.values():
            array.flags.writeable = False

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self._arrays:
            raise KeyError(f"record {self.name!r} has no array {key!r}; it has {', '.join(self._arrays)}")
        return self._arrays[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        arrays = ", ".join(f"{name} {list(array.shape)}" for name, array in self._arrays.items())
        return f"Record({self.name}: {arrays})"


def save(name: str, arrays: Mapping[str, np.ndarray], meta: dict, folder: Path | None = None) -> Record:
    """Write a record whole; `meta` must give config, seeds, seconds, recipe and scale (versions are added).

    Floats are kept as float32 unless their names begin with "exact_". Raises ValueError for arrays of
    objects or an incomplete `meta`; the record that was there stays until the new one is complete.
    """
    folder = folder or DATA
    meta = {"versions": versions(), **meta}
    if lacking := [key for key in KEYS if key not in meta]:
        raise ValueError(f"a record's meta must give {', '.join(KEYS)}; {', '.join(lacking)} is missing")
    kept = {key: _compact(key, np.array(array)) for key, array in arrays.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **kept)
    meta["sha256"] = hashlib.sha256(buffer.getvalue()).hexdigest()
    try:
        text = json.dumps(meta, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"a record's meta holds JSON values, finite ones; {error}") from None
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f"{name}.npz", buffer.getvalue())
    write_whole(folder / f"{name}.json", text.encode())
    return Record(name, kept, meta)


def load(name: str, folder: Path | None = None) -> Record:
    """Read a record; `RecordError` when it is missing or damaged, which leaves the files alone."""
    folder = folder or DATA
    arrays, about = folder / f"{name}.npz", folder / f"{name}.json"
    if not arrays.exists() and not about.exists():
        near = get_close_matches(name, names(folder), cutoff=0.4)
        hint = f" Did you mean {' or '.join(near)}?" if near else f" There are: {', '.join(names(folder))}."
        raise RecordError(f"there is no record {name!r}.{hint} To make it: {_command(name)}")
    try:
        data = arrays.read_bytes()
        meta = json.loads(about.read_text(encoding="utf-8"))
        if hashlib.sha256(data).hexdigest() != meta["sha256"]:
            raise ValueError("its contents differ from its hash")
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return Record(name, {key: file[key] for key in file.files}, meta)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        what = f"{type(error).__name__}: {error}"
        raise RecordError(
            f"record {name!r} in {folder} is damaged ({what}); it was left as it is. "
            f"To make it anew: {_command(name)}"
        ) from None


def names(folder: Path | None = None) -> list[str]:
    """The names of the records there are, damaged ones among them."""
    folder = folder or DATA
    return sorted({path.stem for kind in ("json", "npz") for path in folder.glob(f"*.{kind}")})


def versions() -> dict[str, str]:
    """The versions a result depends on."""
    return {"python": platform.python_version()} | {name: installed(name) for name in MADE_WITH}


@cache
def installed(package: str) -> str:
    """The version of a package here, looked up once: that takes milliseconds, and sweeps ask for each run."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def write_whole(path: Path, data: bytes) -> None:
    """Write beside, then rename: a kill leaves the old file or the new one, never half of one."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _compact(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.hasobject:
        raise ValueError(f"array {name!r} holds objects, which need pickle; give numbers or strings")
    wide = array.dtype == np.float64 and not name.startswith("exact_")
    return array.astype(np.float32) if wide else array


def _command(name: str) -> str:
    return f"python -m iclkit.records make {name}"
