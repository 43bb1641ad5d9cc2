"""How a chapter opens: one thread, the style, versions and the site's address in words."""

import matplotlib.pyplot as plt
import torch

import iclkit
from iclkit.opening import site_address


def test_begin_sets_one_thread_and_the_style_and_says_the_versions(capsys):
    torch.set_num_threads(2)
    plt.rcParams["axes.spines.top"] = True
    iclkit.begin()
    assert torch.get_num_threads() == 1 and not plt.rcParams["axes.spines.top"]
    first, second = capsys.readouterr().out.splitlines()
    assert f"iclkit {iclkit.__version__}, torch {torch.__version__}" in first
    assert second == f"This book: {site_address()}"


def test_the_sites_address_follows_from_the_repositorys():
    assert site_address("https://github.com/Someone/a-book") == "https://someone.github.io/a-book/"
    assert site_address().startswith("https://") and site_address().count("/") == 4
