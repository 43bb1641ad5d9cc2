"""What the book needs and Jupyter Book lacks, as one Sphinx extension.

- repository:  every link to the repository follows from the one address in pyproject.toml
- execution:   kernels build with frames and one thread; the cache knows the package (iclbook_execute)
- pages:       scorecard, reference and speed made at build time (iclbook_pages, iclbook_speed)
- finishing:   noscript figures, last change, the 404 page, a zip of the executed notebooks (iclbook_finish)
"""

import os
import sys
import tomllib
from pathlib import Path

import iclbook_execute
import iclbook_finish
import iclbook_pages
import iclbook_speed


def setup(app):
    sys.path.insert(0, str(app.srcdir))
    _drop_thebe(app)
    app.connect("config-inited", use_repository, priority=100)
    app.connect("config-inited", leave_environments_out, priority=100)
    for part in (iclbook_execute, iclbook_pages, iclbook_speed, iclbook_finish):
        part.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def repository_address(source: Path) -> str:
    """The address under [project.urls] of pyproject.toml, the one place where it stands."""
    return tomllib.loads((source / "pyproject.toml").read_text())["project"]["urls"]["Repository"]


def use_repository(app, config):
    """Set the buttons, the canonical address and the preview from the repository's address."""
    from iclkit.opening import site_address

    repository = repository_address(Path(app.srcdir))
    site = site_address(repository)
    config.html_theme_options |= {
        "repository_url": repository,
        "use_repository_button": True,
        "use_edit_page_button": True,
        "use_issues_button": True,
        "navbar_persistent": [],
    }
    config.html_context["default_mode"] = "auto"
    config.html_baseurl = site
    config.ogp_site_url = site
    config.ogp_site_name = config.html_title
    config.ogp_image = site + "_static/preview.png"
    config.ogp_image_alt = "Two attention heads, the second reading what the first wrote"


def leave_environments_out(app, config):
    """Exclude every virtual environment in the checkout, whatever its name, from the build."""
    source = Path(app.srcdir)
    for folder, names, files in os.walk(source):
        if "pyvenv.cfg" in files:
            config.exclude_patterns.append(Path(folder).relative_to(source).as_posix())
            names.clear()
        else:
            names[:] = [name for name in names if name not in ("_build", ".git")]


def _drop_thebe(app):
    """Take out sphinx-thebe, which Jupyter Book loads always: it puts a script for live kernels, and an
    error in the console, on every page."""
    for listeners in app.events.listeners.values():
        listeners[:] = [one for one in listeners if one.handler.__module__ != "sphinx_thebe"]
    app.registry.css_files[:] = [one for one in app.registry.css_files if one[0] != "sphinx-thebe.css"]
