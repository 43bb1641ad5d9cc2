"""Steps a second on one GPU: `python tests/benchmarks/gpu.py [--out FILE]`, about five minutes.

Batches are made on the GPU inside the timed loop, as training makes them. Each cell is the median of five
blocks with their range, clocked by the device; a cell that fails is named and the others go on.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch  # noqa: E402
from tqdm import tqdm  # noqa: E402

from benchmarks.shapes import SHAPES, Shape  # noqa: E402
from iclkit.model import Transformer  # noqa: E402
from iclkit.stepping import build_stepper  # noqa: E402
from iclkit.training import TrainConfig, batch_on  # noqa: E402

STACKS = (1, 8, 64)
BLOCKS, WARM = 5, 10


def main(arguments: list[str] | None = None) -> int:
    """Measure every shape and stack, eager and recorded, and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--steps", type=int, default=100, help="of a block")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("this needs a CUDA device; on a CPU run `python tests/benchmarks`", file=sys.stderr)
        return 2
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "steps": options.steps}
    cells = {}
    grid = [(shape, count, record) for shape in SHAPES for count in STACKS for record in (False, True)]
    for shape, count, record in tqdm(grid):
        key = f"{shape}/{count} models/{'recorded' if record else 'eager'}"
        try:
            cells[key] = rates(SHAPES[shape], count, record, options.steps)
        except Exception as error:
            cells[key] = {"error": f"{type(error).__name__}: {error}"}
        options.out.write_text(json.dumps({"about": about, "models x steps a second": cells}, indent=1))
    print(options.out.read_text())
    return 0


def rates(shape: Shape, count: int, record: bool, steps: int) -> dict:
    """Models × steps a second, and the most memory held."""
    device = torch.device("cuda")
    models = [Transformer(shape.model, seed) for seed in range(count)]
    stepper = build_stepper(models, [TrainConfig(steps=10_000)] * count, device, compile=record)
    torch.cuda.reset_peak_memory_stats()
    done, seconds = 0, []
    for number in [WARM, *[steps] * BLOCKS]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(number):
            stepper.step([batch_on(device, shape.task, seed, done) for seed in range(count)], done)
            done += 1
        end.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3 / number)
    found = sorted(count / one for one in seconds[1:])
    return {
        "median": median(found),
        "low": found[0],
        "high": found[-1],
        "MB": torch.cuda.max_memory_allocated() / 2**20,
    }


if __name__ == "__main__":
    sys.exit(main())
