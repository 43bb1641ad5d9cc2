"""Results as Markdown, block by block: what the command prints and what the book's page shows.

Standard library alone: the book's extension imports this file, in an environment without the peers.
"""

from benchmarks.results import Results, Spread, exponent

EAGER = ("plain", "hugging-face", "x-transformers", "transformer-lens", "torch-encoder")
JAX = ("jax", "jax-scan", "equinox")
LIMITS = ("limit", "limit-bfloat16")
START = 5e-6  # seconds to start a kernel from Python
CARDS = {"T4": (8.1, 0.32), "A100": (19.5, 2.0), "H200": (67.0, 4.8)}  # float32 TFLOP/s, TB/s
AXES = {
    "sequence": "sequence length, 16 sequences",
    "width": "d_model, 16 sequences of 128",
    "models": "models at once, few-shot",
    "chains": "Markov chains in the pool (making a batch)",
}


def setting(results: Results) -> list[str]:
    """One paragraph: when, on what, with which versions and how."""
    about, machine, probe = results.about, results.about["machine"], results.bandwidth()
    features = ", ".join(machine["features"]) or "none known"
    disturbed, blocks = results.disturbed()
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return [
        f"Run of {about['date']} on {machine['cores']} cores of {machine['processor']} ({machine['system']}; "
        f"vector instructions: {features}), {about['threads']} threads, "
        f"{about['rounds']} rounds of blocks of {about['seconds']:g} s. "
        f"Load of the machine before the run: {about['load']:.1f}. "
        f"Copying memory around the blocks: {number(probe.median)} GB/s "
        f"({number(probe.low)} to {number(probe.high)}); {disturbed} of {blocks} blocks stand beside a probe "
        f"more than a fifth below the median. Versions: {versions}."
    ]


def steps(results: Results) -> list[str]:
    """Steps a second, a row a variant."""
    shapes, variants = results.keys("steps")
    counts = [results.cell("steps", shape, "ours").get("parameters") for shape in shapes]
    rows = [["parameters", *(f"{count:,}" if count else "" for count in counts)]]
    for variant in variants:
        rates = [results.rate("steps", shape, variant) for shape in shapes]
        rows.append([results.label(variant), *map(cell, rates)])
    return table(["steps a second", *map(results.label, shapes)], rows)


def ratios(results: Results) -> list[str]:
    """How many times as fast as others ours is, round by round."""
    shapes, variants = results.keys("steps")
    rows = []
    for mine in [variant for variant in variants if variant.startswith("ours")]:
        limit = LIMITS["bfloat16" in mine]
        for name, among in (
            ("the fastest eager PyTorch peer", EAGER),
            ("TransformerLens", ("transformer-lens",)),
            ("the fastest in JAX", JAX),
            (results.label(limit), (limit,)),
        ):
            row = [f"{results.label(mine)} ÷ {name}"]
            for shape in shapes:
                peer = results.fastest("steps", shape, among)
                ratio = results.ratio("steps", shape, mine, peer) if peer else None
                who = f", {results.label(peer)}" if ratio and len(among) > 1 else ""
                row.append(cell(ratio, "×", who))
            rows.append(row)
    return table(["times as fast", *map(results.label, shapes)], [row for row in rows if any(row[1:])])


def many(results: Results) -> list[str]:
    """Eight models at once: models × steps a second, and the ratio to the loop."""
    shapes, variants = results.keys("many")
    rows = []
    for variant in variants:
        row = [results.label(variant)]
        for shape in shapes:
            ratio = results.ratio("many", shape, variant, "loop")
            beside = f"; {number(ratio.median)}× the loop" if ratio and variant != "loop" else ""
            row.append(cell(results.rate("many", shape, variant), "", beside))
        rows.append(row)
    return table(["models × steps a second", *map(results.label, shapes)], rows)


def first(results: Results) -> list[str]:
    """Seconds from a built model to its first finished step, in a fresh process."""
    return _column(results, "first", "seconds to the first step", lambda one: number(one["first"]))


def memory(results: Results) -> list[str]:
    """Peak memory of a fresh process, and how much of it came after the model was built."""
    return _column(
        results,
        "peak",
        "peak memory in MB (of it since the model was built)",
        lambda one: f"{one['peak']:.0f} ({one['peak'] - one['built']:.0f})",
    )


def _column(results: Results, field: str, title: str, text) -> list[str]:
    shapes, variants = results.keys("steps")
    rows = []
    for variant in variants:
        if variant in (*LIMITS, "batches"):
            continue
        cells = [results.cell("steps", shape, variant) for shape in shapes]
        rows.append([results.label(variant), *(text(one) if field in one else "" for one in cells)])
    return table([title, *map(results.label, shapes)], rows)


def scaling(results: Results) -> list[str]:
    """Milliseconds a step along one axis at a time, with the exponent of the fitted power."""
    lines = []
    for axis, title in AXES.items():
        shapes, variants = results.keys("scaling")
        values = sorted(int(shape.partition("=")[2]) for shape in shapes if shape.startswith(axis + "="))
        rows = []
        for variant in variants:
            curve = dict(results.curve(axis, variant))
            if curve:
                power, end = exponent(curve.items()), exponent(list(curve.items())[-2:])
                powers = [number(p) if p is not None else "" for p in (power, end)]
                name = results.label(variant)
                rows.append([name, *(number(curve[v]) if v in curve else "" for v in values), *powers])
        if rows:
            head = [f"{title}: ms a step", *map(str, values), "exponent", "of the last two"]
            lines += [*table(head, rows), ""]
    return lines or ["Not measured in this run."]


def shares(results: Results) -> list[str]:
    """What share of our step each kind of operation takes."""
    taken = results.data["shares"]
    kinds = list(dict.fromkeys(kind for one in taken.values() for kind in one["kinds"]))
    rows = [[kind, *(f"{one['kinds'].get(kind, 0):.0%}" for one in taken.values())] for kind in kinds]
    return table(["share of the step", *map(results.label, taken)], rows)


def gpu(results: Results) -> list[str]:
    """What the counted work of a step allows on a GPU: arithmetic, not measurement."""
    work, rows = results.data.get("work", {}), []
    for shape, one in work.items():
        row = [
            results.label(shape),
            str(one["kernels"]),
            number(one["bytes"] / 1e6),
            number(one["flop"] / 1e9),
        ]
        row.append(number(1 / (one["kernels"] * START)))
        for peak, bandwidth in CARDS.values():
            row.append(number(1 / max(one["bytes"] / (bandwidth * 1e12), one["flop"] / (peak * 1e12))))
        rows.append(row)
    head = ["at most, a second", "kernels", "MB moved", "GFLOP", "steps, started one by one"]
    sheets = "; ".join(f"{card} {peak} TFLOP/s, {speed} TB/s" for card, (peak, speed) in CARDS.items())
    assumed = f"Assumed: {START * 1e6:g} µs to start a kernel; in float32, by the data sheets, {sheets}."
    return [*table([*head, *(f"models × steps, {card}" for card in CARDS)], rows), "", assumed]


def failures(results: Results) -> list[str]:
    """What could not be measured, and why."""
    wrong = []
    for key, error in results.errors():
        part, shape, variant = key.split("/")
        wrong.append(f"- {results.label(variant)}, {results.label(shape)} ({part}): {error}")
    return wrong or ["Nothing failed."]


BLOCKS = {
    block.__name__: block
    for block in (setting, steps, ratios, many, first, memory, scaling, shares, gpu, failures)
}


def as_text(results: Results) -> str:
    """All blocks, one under the other."""
    parts = []
    for name, block in BLOCKS.items():
        if name != "setting" or results.bandwidth():
            parts.append(f"## {name}\n\n" + "\n".join(block(results)))
    return "\n\n".join(parts)


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cell(spread: Spread | None, unit: str = "", beside: str = "") -> str:
    """A median with its range, such as "47.8 (46.1–48.3)"."""
    if spread is None:
        return ""
    return f"{number(spread.median)}{unit} ({number(spread.low)}–{number(spread.high)}{beside})"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table, numbers to the right; a sentence where there is nothing to show."""
    if not rows:
        return ["Not measured in this run."]
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]
