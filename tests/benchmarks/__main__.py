"""`python tests/benchmarks`, or `python -m benchmarks` from tests/."""

import json
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        from benchmarks.worker import serve

        serve(json.loads(sys.argv[2]))
    else:
        from benchmarks.command import main

        sys.exit(main())
