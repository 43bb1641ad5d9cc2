"""The built site as files: links, weight, downloads, the page for lost readers, the one address."""

import gzip
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from html.parser import HTMLParser
from urllib.parse import unquote, urlparse

from built import ROOT, checkout_files, pages, site  # noqa: F401

MOST_BYTES = 2_000_000


class Page(HTMLParser):
    """The links, pictures and anchors of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links, self.pictures, self.anchors, self.meta = [], [], set(), {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors |= {attrs.get("id"), attrs.get("name")} - {None}
        if tag in ("a", "link") and attrs.get("href"):
            self.links.append(attrs["href"])
        if tag in ("img", "script") and attrs.get("src"):
            self.links.append(attrs["src"])
        if tag == "img":
            self.pictures.append(attrs.get("src", ""))
        if tag == "meta" and "property" in attrs:
            self.meta[attrs["property"]] = attrs.get("content")


def read(site):  # noqa: F811
    return {name: Page((site / name).read_text()) for name in pages(site)}


def test_internal_links_resolve(site):  # noqa: F811
    parsed, broken = read(site), []
    for name, page in parsed.items():
        for link in page.links:
            parts = urlparse(link)
            if parts.scheme or link.startswith("/") and name == "404.html":
                continue
            target = (site / name).parent / unquote(parts.path) if parts.path else site / name
            target = target.resolve()
            if not target.is_file():
                broken.append(f"{name}: {link}")
            elif parts.fragment and target.suffix == ".html":
                anchors = parsed[target.relative_to(site.resolve()).as_posix()].anchors
                if unquote(parts.fragment) not in anchors:
                    broken.append(f"{name}: {link} (no such place on the page)")
    assert broken == []


def test_pages_weigh_little(site):  # noqa: F811
    """What a page sends (its text compressed, as servers do) with its own pictures, beyond shared scripts."""
    heavy = {}
    for name, page in read(site).items():
        own = [link for link in page.pictures if not urlparse(link).scheme]
        files = {((site / name).parent / unquote(urlparse(link).path)).resolve() for link in own}
        text = gzip.compress((site / name).read_bytes())
        weight = len(text) + sum(file.stat().st_size for file in files)
        if weight > MOST_BYTES:
            heavy[name] = weight
    assert heavy == {}


def test_notebooks_can_be_downloaded(site):  # noqa: F811
    with zipfile.ZipFile(site / "_static/notebooks.zip") as archive:
        names = archive.namelist()
        sample = json.loads(archive.read("sample/sample.ipynb"))
    written = [name for name in checkout_files() if re.fullmatch(r"chapters/\d{3}\w*\.ipynb", name)]
    built = [name for name in written if (site / name).with_suffix(".html").exists()]
    assert sorted(names) == sorted([*built, "sample/sample.ipynb"])
    assert any(cell.get("outputs") for cell in sample["cells"]), "the zip must hold executed notebooks"
    assert (site / "_sources/sample/sample.ipynb").exists()
    assert "download-notebook-button" in (site / "sample/sample.html").read_text() or (
        'href="../_sources/sample/sample.ipynb"' in (site / "sample/sample.html").read_text()
    )


def repository() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]


def test_buttons_lead_to_the_repository(site):  # noqa: F811
    text = (site / "sample/sample.html").read_text()
    path = urlparse(repository()).path
    assert f"https://colab.research.google.com/github{path}/blob/main/sample/sample.ipynb" in text
    assert f"{repository()}/edit/main/sample/sample.ipynb" in text
    assert f"{repository()}/issues/new" in text


def test_the_repository_address_stands_in_one_place():
    """Chapters alone repeat it, in the setup cell that is written from pyproject.toml."""
    name = urlparse(repository()).path.strip("/").lower()
    found = []
    for file in checkout_files():
        text = (ROOT / file).read_bytes().decode(errors="ignore").lower()
        allowed = text.count(f"git+{repository().lower()}@v") if file.startswith("chapters/") else 0
        if text.count(name) > allowed:
            found.append(file)
    assert found == ["pyproject.toml"]


def test_the_root_leads_to_the_front_page(site):  # noqa: F811
    assert "url=book/index.html" in (site / "index.html").read_text()


def test_lost_readers_find_home(site):  # noqa: F811
    page = Page((site / "404.html").read_text())
    assert page.links == [f"/{repository().rsplit('/', 1)[1]}/"]


def test_preview_and_last_change(site):  # noqa: F811
    meta = Page((site / "book/index.html").read_text()).meta
    assert meta["og:image"].endswith("/_static/preview.png") and (site / "_static/preview.png").exists()
    assert meta["og:title"] and meta["og:description"] and meta["og:url"]
    # A copy without history knows no dates; the page then says nothing rather than something wrong.
    assert "Last updated on None" not in (site / "book/index.html").read_text()


def test_front_page_promises_only_what_is_there(site):  # noqa: F811
    text = (site / "book/index.html").read_text()
    for number in range(101, 107):
        written = list(site.glob(f"chapters/{number}_*.html"))
        (line,) = re.findall(rf"<li><p>(?:<[^>]*>)*{number} .*?</li>", text)
        assert ("(planned)" in line) == (not written), line
        assert ("href" in line) == bool(written), line


def test_vendored_files_keep_their_licences():
    for folder in (ROOT / "book/vendor").iterdir():
        assert (folder / "LICENSE").stat().st_size > 500, folder


def test_the_example_of_the_extension_page_runs():
    text = (ROOT / "book/extend.md").read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "reproduced" in ran.stdout.splitlines()[-1].split(" - ")[0]


def test_the_reference_covers_what_circuits_and_tasks_define():
    """Every module with public names for readers; what only serves the inside stays out."""
    listed = set(re.findall(r"icl-reference\} (iclkit[.\w]*)", (ROOT / "book/api.md").read_text()))
    for folder in ("circuits", "tasks"):
        modules = {f"iclkit.{folder}.{path.stem}" for path in (ROOT / "iclkit" / folder).glob("*.py")}
        assert {name for name in modules if not name.endswith("__")} <= listed
