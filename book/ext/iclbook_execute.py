"""Execution of the chapters: environment of the kernels, a cache that knows the package, two at a time."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sphinx.errors import ExtensionError
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
AT_ONCE = 2


def setup(app):
    app.connect("config-inited", set_environment, priority=100)
    app.connect("config-inited", set_cache, priority=100)
    app.connect("env-before-read-docs", fill_cache)


def set_environment(app, config):
    """Give the kernels frames instead of live figures, one thread, and this checkout's package."""
    paths = [str(app.srcdir), os.environ.get("PYTHONPATH", "")]
    os.environ |= {
        "ICLKIT_BUILD": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }


def execution_key(source: Path) -> str:
    """A name for everything outside a notebook that its outputs depend on.

    Jupyter Book's own key is the notebook's code alone, so that it shows old outputs after a change in the
    package. This one covers every file of iclkit and requirements.txt.
    """
    digest = hashlib.sha256()
    files = [path for path in (source / "iclkit").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    for path in [*sorted(files), source / "requirements.txt"]:
        if path.exists():
            digest.update(path.relative_to(source).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def set_cache(app, config):
    """Keep executed notebooks under the execution key; ICLKIT_BOOK_CACHE names another parent folder.

    A new folder is a changed setting to Sphinx, so that every page is read, and executed, again.
    """
    parent = os.environ.get("ICLKIT_BOOK_CACHE") or Path(app.outdir).parent / ".jupyter_cache"
    config.nb_execution_cache_path = str(Path(parent) / execution_key(Path(app.srcdir)))


def fill_cache(app, env, docnames):
    """Execute the notebooks about to be read, two at a time, and put them into the cache.

    A notebook that fails stops the build with its traceback.
    """
    import nbformat
    from jupyter_cache import get_cache

    if env.mystnb_config.execution_mode != "cache":
        return
    cache = get_cache(env.mystnb_config.execution_cache_path)
    todo = []
    for docname in sorted(docnames):
        path = Path(env.doc2path(docname))
        if path.suffix != ".ipynb":
            continue
        notebook = nbformat.read(path, as_version=4)
        try:
            cache.match_cache_notebook(notebook)
        except KeyError:
            todo.append((path, notebook))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = pool.map(lambda job: _execute(*job, env.mystnb_config.execution_timeout), todo)
        for (path, notebook), result in zip(todo, results, strict=True):
            _store(cache, path, notebook, result)


def _execute(path: Path, notebook, timeout: int):
    from jupyter_cache.executors.utils import single_nb_execution

    return single_nb_execution(notebook, cwd=str(path.parent), timeout=timeout, allow_errors=False)


def _store(cache, path: Path, notebook, result) -> None:
    from jupyter_cache.base import CacheBundleIn

    if result.err is not None:
        raise ExtensionError(f"{path.name} failed after {result.time:.0f} s:\n{result.exc_string}")
    LOGGER.info("executed %s in %.1f s", path.name, result.time)
    bundle = CacheBundleIn(notebook, str(path), data={"execution_seconds": result.time})
    cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
