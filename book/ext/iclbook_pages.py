"""Pages made at build time: the scorecard from its JSON, the reference from the docstrings."""

import dataclasses
import html
import importlib
import inspect
import json
import re
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

SCORECARD = "iclkit/records/scorecard.json"
ADDRESS = re.compile(r"https?://[^\s)&;,]+[^\s)&;,.]")
CHAPTERS = re.compile(r"\d{3}[ _]")


def setup(app):
    app.add_directive("icl-scorecard", Scorecard)
    app.add_directive("icl-reference", Reference)
    app.add_directive("icl-map", Map)


class Map(SphinxDirective):
    """Parts and chapters, one a line; those that are not written yet are called planned."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        return _parsed(self, map_lines(list(self.content), chapters_by_number(self.env.found_docs)))


def chapters_by_number(docnames) -> dict[str, str]:
    """The chapters of the book, a number such as 104 to a document name."""
    return {Path(name).name[:3]: name for name in docnames if CHAPTERS.match(Path(name).name)}


def map_lines(entries: list[str], chapters: dict[str, str]) -> list[str]:
    """The map as MyST: a part is a line of its own, a chapter a list entry, linked when it exists."""
    lines = []
    for position, entry in enumerate(entries):
        number = entry[:3]
        if number in chapters:
            lines.append(f"- [{entry}](/{chapters[number]}.ipynb)")
        elif CHAPTERS.match(entry):
            lines.append(f"- {entry} *(planned)*")
        else:
            following = entries[position + 1] if position + 1 < len(entries) else ""
            planned = "" if CHAPTERS.match(following) else " *(planned)*"
            lines += ["", f"**{entry}**{planned}", ""]
    return lines


def _parsed(directive: SphinxDirective, lines: list[str]) -> list[nodes.Node]:
    holder = nodes.container()
    directive.state.nested_parse(StringList(lines, source="iclbook"), directive.content_offset, holder)
    return holder.children


class Scorecard(SphinxDirective):
    """One table row a claim, from the shipped scorecard."""

    def run(self) -> list[nodes.Node]:
        path = Path(self.env.srcdir) / SCORECARD
        self.env.note_dependency(str(path))
        rows = json.loads(path.read_text()) if path.exists() else []
        return _parsed(self, scorecard_lines(rows, chapters_by_number(self.env.found_docs)))


def scorecard_lines(rows: list[dict], chapters: dict[str, str]) -> list[str]:
    """The scorecard as a MyST table; `chapters` maps a number such as 104 to a document name."""
    if not rows:
        return ["No claim has been measured yet."]
    verdicts = [row["verdict"] for row in rows]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    lines = [
        f"{len(rows)} claims measured: {counts}.",
        "",
        "| claim | chapter | finding | theirs | ours (range over seeds) | seeds | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        number = str(row["chapter"])
        link = f"[{number}](/{chapters[number]}.ipynb)" if number in chapters else number
        cells = [_cell(row["finding"]), _cell(row["theirs"]), _cell(ours(row)), str(row["seeds"])]
        lines.append("| " + " | ".join([row["id"], link, *cells, f"**{row['verdict']}**"]) + " |")
    return [*lines, "", "The reasons:", "", *(f"- **{row['id']}** {_cell(row['why'])}." for row in rows)]


def ours(row: dict) -> str:
    """Our number with its unit and range, such as "0.41 nats (0.39 to 0.43)"."""
    value = _number(row.get("ours"))
    text = f"{value} {row.get('unit') or ''}".strip()
    if row.get("low") is not None and row.get("high") is not None:
        text += f" ({_number(row['low'])} to {_number(row['high'])})"
    return text


def _number(value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _cell(value) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


class Reference(SphinxDirective):
    """Signatures and docstrings of a module's public names: what it defines without a leading underscore."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module = importlib.import_module(self.arguments[0])
        self.env.note_dependency(inspect.getsourcefile(module))
        found = [_doc(module)]
        for name, member in public_members(module):
            found += [self._title(f"{name}"), _signature(name, member), _doc(member)]
            for method, function in public_methods(member):
                found += [_signature(f"{name}.{method}", function), _doc(function)]
        return found

    def _title(self, name: str) -> nodes.Node:
        title = nodes.rubric("", "", nodes.literal("", name))
        title["ids"] = [nodes.make_id(f"{self.arguments[0]}-{name}")]
        return title


def public_members(module) -> list[tuple[str, object]]:
    """Functions and classes that the module itself defines, in the order of its source."""
    members = [
        (name, member)
        for name, member in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(member) or inspect.isclass(member))
        and member.__module__ == module.__name__
    ]
    return sorted(members, key=lambda pair: inspect.getsourcelines(pair[1])[1])


def public_methods(member) -> list[tuple[str, object]]:
    """A class's own documented public methods and properties."""
    if not inspect.isclass(member):
        return []
    return [
        (name, getattr(method, "fget", None) or getattr(method, "__func__", method))
        for name, method in vars(member).items()
        if not name.startswith("_") and inspect.getdoc(method) and not isinstance(method, type)
        and (inspect.isfunction(method) or isinstance(method, (property, classmethod, staticmethod)))
    ]  # fmt: skip


def _signature(name: str, member) -> nodes.Node:
    if dataclasses.is_dataclass(member) and inspect.isclass(member):
        fields = [_field(field) for field in dataclasses.fields(member)]
        text = f"{name}(\n" + "".join(f"    {field},\n" for field in fields) + ")"
    else:
        try:
            text = name + re.sub(r"jaxtyping\.|torch\.", "", str(inspect.signature(member)))
        except ValueError:
            text = name
    return nodes.literal_block(text, text, language="python", force=True)


def _field(field) -> str:
    kind = getattr(field.type, "__name__", str(field.type)) if isinstance(field.type, type) else field.type
    if field.default is not dataclasses.MISSING:
        return f"{field.name}: {kind} = {field.default!r}"
    return f"{field.name}: {kind}"


def _doc(member) -> nodes.Node:
    """The docstring as it stands in the source, its addresses made links."""
    text = html.escape(inspect.getdoc(member) or "")
    text = ADDRESS.sub(r'<a href="\g<0>">\g<0></a>', text)
    text = re.sub(r"`([^`\n]+)`", r"<code>\1</code>", text)
    return nodes.raw("", f'<div class="icl-doc">{text}</div>', format="html")
