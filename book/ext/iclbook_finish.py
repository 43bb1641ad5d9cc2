"""The last touches of a page and of the site."""

import json
import re
import subprocess
import zipfile
from pathlib import Path
from urllib.parse import urlparse

STATE = "application/vnd.jupyter.widget-state+json"
VIEW = re.compile(
    r'<script type="application/vnd\.jupyter\.widget-view\+json">\s*(\{.*?\})\s*</script>', re.DOTALL
)


def setup(app):
    app.connect("builder-inited", read_last_changes)
    app.connect("html-page-context", add_last_change)
    app.connect("html-page-context", add_noscript, priority=900)
    app.connect("html-page-context", mend_roles, priority=900)
    app.connect("build-finished", write_404)
    app.connect("build-finished", zip_notebooks)


def read_last_changes(app):
    """Ask git once for the day of each file's last commit."""
    command = ["git", "-c", "core.quotePath=false", "log", "--format=%x00%cs", "--name-only", "--relative"]
    try:
        log = subprocess.run(command, cwd=app.srcdir, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        log = ""
    app.icl_last_changes = {}
    for commit in log.split("\0")[1:]:
        day, *files = commit.split("\n")
        for file in filter(None, files):
            app.icl_last_changes.setdefault(file, day)


def add_last_change(app, pagename, templatename, context, doctree):
    """Show the day on which the page's source last changed."""
    if doctree is not None:
        source = Path(app.env.doc2path(pagename)).relative_to(app.srcdir).as_posix()
        context["last_updated"] = app.icl_last_changes.get(source)


def add_noscript(app, pagename, templatename, context, doctree):
    """After each interactive figure, put its first frame for readers without JavaScript."""
    body = context.get("body", "")
    if "widget-view+json" not in body:
        return
    states = [
        json.loads(script.attributes["body"])["state"]
        for script in context["script_files"]
        if getattr(script, "attributes", {}).get("type") == STATE
    ]
    models = {name: model["state"] for state in states for name, model in state.items()}

    def with_still(match):
        still = first_image(models, json.loads(match[1])["model_id"])
        return match[0] + (f"<noscript>{still}</noscript>" if still else "")

    context["body"] = VIEW.sub(with_still, body)


def mend_roles(app, pagename, templatename, context, doctree):
    """The bibliography calls itself a list, but its entries are no list items: screen readers stumble."""
    if "body" in context:
        context["body"] = context["body"].replace('<div role="list" class="citation-list">', "<div>")


def first_image(models: dict, name: str) -> str | None:
    """The first <img> below a widget, in the order in which its children are shown."""
    model = models.get(name, {})
    value = model.get("value")
    if isinstance(value, str) and value.startswith("<img"):
        return value.replace("<img", '<img class="icl-still"', 1)
    for child in model.get("children", ()):
        found = first_image(models, child.removeprefix("IPY_MODEL_"))
        if found:
            return found
    return None


def write_404(app, error):
    """Write 404.html, which stands alone because a server shows it at any depth."""
    if error is None and app.builder.format == "html":
        text = (Path(app.srcdir) / "book/assets/404.html").read_text()
        home = urlparse(app.config.html_baseurl).path or "/"
        (Path(app.outdir) / "404.html").write_text(text.replace("{{home}}", home))


def zip_notebooks(app, error):
    """Put the executed notebooks of the book into _static/notebooks.zip, with a fixed date inside.

    Without the state of the widgets: in a running notebook the figures are drawn anew.
    """
    import nbformat
    from jupyter_cache import get_cache

    if error is not None or app.builder.format != "html":
        return
    cache = get_cache(app.env.mystnb_config.execution_cache_path)
    with zipfile.ZipFile(Path(app.outdir) / "_static/notebooks.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for docname in sorted(app.env.found_docs):
            path = Path(app.env.doc2path(docname))
            if path.suffix == ".ipynb":
                notebook = cache.merge_match_into_notebook(nbformat.read(path, as_version=4))[1]
                notebook.metadata.pop("widgets", None)
                entry = zipfile.ZipInfo(f"{docname}.ipynb", date_time=(2026, 1, 1, 0, 0, 0))
                archive.writestr(entry, nbformat.writes(notebook), zipfile.ZIP_DEFLATED)
