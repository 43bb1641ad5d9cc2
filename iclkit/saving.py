"""A training run on disk: one safetensors file, replaced as a whole, so a kill leaves the last good one."""

import errno
import json
import os
import re
import time
import zlib
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor


def write_whole(tensors: dict[str, Tensor], path: Path, about: dict[str, str]) -> None:
    """Write beside, then rename: whoever reads `path` sees the old file or the new one, never half of one.

    Raises `OSError`, with the system's number for its cause, when there is no room or no right to write.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".partial")
    kept = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    try:
        save_file(kept, beside, metadata={**about, "crc32": checksum(kept, about)})
    except SafetensorError as error:
        cause = re.search(r"os error (\d+)", str(error))
        beside.unlink(missing_ok=True)
        number = int(cause[1]) if cause else errno.EIO
        raise OSError(number, f"{error}; what was saved before stays", str(path)) from None
    beside.replace(path)


def read_whole(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and description of a file of `write_whole`; `ValueError` when damaged (left alone)."""
    try:
        with safe_open(path, "pt") as file:
            tensors, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}
        if (sum_then := about.pop("crc32", None)) and sum_then != checksum(tensors, about):
            raise OSError("its contents differ from its checksum")
        return tensors, about
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} is damaged or half written ({error}); it was left as it is. "
            "Move it away to start this run anew"
        ) from None


def checksum(tensors: dict[str, Tensor], about: dict[str, str]) -> str:
    """The CRC-32 of names, values and description: safetensors has none of its own."""
    value = zlib.crc32(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        value = zlib.crc32(name.encode(), value)
        value = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy(), value)
    return str(value)


class RunFolder:
    """Saves a run every `every` seconds and finds it again, if it is the same run."""

    def __init__(self, folder: str | Path, descriptions: list[str], every: float = 60.0):
        self.path, self.every = Path(folder) / "run.safetensors", every
        self.description = json.dumps(descriptions) if len(descriptions) > 1 else descriptions[0]
        self.last = time.monotonic()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(self.path.parent, os.W_OK):
                raise PermissionError(errno.EACCES, "it is read-only")
        except OSError as error:
            raise ValueError(f"{folder} cannot hold a run ({error}); choose another folder") from None

    def due(self) -> bool:
        return time.monotonic() - self.last > self.every

    def save(self, runs: list, stepper, losses: Tensor, step: int) -> None:
        stepper.publish()
        tensors = {"losses": losses}
        for index, run in enumerate(runs):
            tensors |= {f"model/{index}/{name}": weight for name, weight in run.model.state_dict().items()}
            for at, state in run.checkpoints.items():
                tensors |= {f"checkpoint/{index}/{at}/{name}": weight for name, weight in state.items()}
        tensors |= {f"optimiser/{name}": value for name, value in stepper.state().items()}
        history = json.dumps([json.loads(encoded(run.history)) for run in runs])
        write_whole(tensors, self.path, {"run": self.description, "step": str(step), "history": history})
        self.last = time.monotonic()

    def resume(self, runs: list, stepper, losses: Tensor) -> int:
        """Put saved runs back in place and return their number of updates; 0 when there are none."""
        if not self.path.exists():
            return 0
        tensors, about = read_whole(self.path)
        if "run" not in about or "step" not in about or "losses" not in tensors:
            raise ValueError(f"{self.path} holds no run of this package, or a damaged one; move it away")
        if about["run"] != self.description:
            raise ValueError(
                f"{self.path} holds another run (model, task, training or measures differ), or one that another "
                "version of this package saved; choose another folder, or move that file away"
            )
        losses.copy_(tensors["losses"])
        for index, (run, history) in enumerate(zip(runs, json.loads(about["history"]))):
            run.model.load_state_dict(under(tensors, f"model/{index}"))
            run.history.update(history)
            for name, weight in under(tensors, f"checkpoint/{index}").items():
                at, _, name = name.partition("/")
                run.checkpoints.setdefault(int(at), {})[name] = weight
        stepper.load(under(tensors, "optimiser"))
        return int(about["step"])


def encoded(history: dict[str, list]) -> str:
    """Measures as JSON; `ValueError` names one that cannot be kept."""
    for name, values in history.items():
        try:
            json.dumps(values)
        except (TypeError, ValueError):
            raise ValueError(
                "measures kept in a folder return numbers, lists, arrays or tensors; "
                f"{name!r} gave {values[-1]!r}"
            ) from None
    return json.dumps(history)


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors named `prefix/…`, by the rest of their names."""
    return {n.removeprefix(prefix + "/"): t for n, t in tensors.items() if n.startswith(prefix + "/")}
