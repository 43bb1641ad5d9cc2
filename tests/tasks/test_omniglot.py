"""Omniglot without Omniglot: small archives of our own strokes, a server of our own; real ones when given."""

import functools
import hashlib
import http.server
import io
import os
import threading
import zipfile
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

from iclkit.tasks import FewShot
from iclkit.tasks import omniglot as module
from iclkit.tasks.omniglot import OmniglotError, drawings, fetch, omniglot, oriented, principal, smooth


def stroke(seed: int, side: int = 105) -> bytes:
    """A picture as Omniglot has them: 1 bit, black ink on white."""
    random = np.random.default_rng(seed)
    picture = np.ones((side, side), bool)
    x, y = random.integers(20, 80, 2)
    for dx, dy in random.integers(-3, 4, (30, 2)):
        x, y = np.clip([x + dx, y + dy], 2, side - 3)
        picture[y - 1 : y + 2, x - 1 : x + 2] = False
    file = io.BytesIO()
    Image.fromarray(picture).convert("1").save(file, "PNG")
    return file.getvalue()


def tree(first: int, characters: int, count: int = 3, alphabet: str = "Signs") -> dict[str, bytes]:
    return {
        f"{alphabet}/character{c + 1:02}/{c:04}_{d + 1:02}.png": stroke(100 * (first + c) + d)
        for c in range(characters)
        for d in range(count)
    }


def archive(path, files: dict[str, bytes]) -> bytes:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in files.items():
            file.writestr(f"{path.stem}/{name}", content)
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path):
    """Two archives, the second with one character of the first again."""
    archive(tmp_path / "images_background_small1.zip", tree(0, 4))
    archive(tmp_path / "images_background_small2.zip", {**tree(9, 2), **tree(3, 1, alphabet="Tales")})
    return tmp_path


def pixels(content: bytes) -> torch.Tensor:
    return ~torch.from_numpy(np.array(Image.open(io.BytesIO(content))))


def test_drawings_stand_in_order_and_twins_count_once(folder):
    found = drawings(folder)
    assert found.shape == (6, 3, 105, 105) and found.dtype == torch.bool
    for index, character in enumerate([0, 1, 2, 3, 9, 10]):
        for drawing in range(3):
            assert torch.equal(found[index, drawing], pixels(stroke(100 * character + drawing)))


def test_an_unpacked_folder_reads_the_same(folder, tmp_path_factory):
    unpacked = tmp_path_factory.mktemp("unpacked")
    for path in sorted(folder.glob("*.zip")):
        zipfile.ZipFile(path).extractall(unpacked)
    assert torch.equal(drawings(unpacked), drawings(folder))


@pytest.mark.parametrize("orientation", range(8))
def test_class_8c_plus_o_is_character_c_in_orientation_o(folder, orientation):
    """A character drawn turned is, upright, the class that the straight one is when turned."""
    images = drawings(folder)[:2]
    x = principal(torch.cat([images, oriented(images, orientation)]), d_features=20)
    assert x.shape == (4 * 8, 3, 20)
    for character in (0, 1):
        assert torch.allclose(x[8 * character + orientation], x[8 * (2 + character)], atol=1e-4)
    distances = torch.cdist(x[:16, 0], x[:16, 0]) + torch.eye(16) * 9
    assert distances.min() > 1e-3, "eight orientations of two characters are sixteen classes"


def test_orientations_are_the_eight_of_a_square():
    square = torch.arange(9).view(3, 3)
    seen = {tuple(oriented(square, orientation).flatten().tolist()) for orientation in range(8)}
    assert len(seen) == 8
    assert torch.equal(oriented(square, 0), square) and torch.equal(oriented(square, 4), square.flip(1))


def test_principal_components_keep_distances_and_are_ordered(folder):
    images = drawings(folder)
    small = torch.nn.functional.adaptive_avg_pool2d(images.flatten(0, 1)[:, None].float(), 28)
    x = principal(images, d_features=143)  # 6 · 3 · 8 pictures span at most 143 dimensions around their mean
    upright = x.view(6, 8, 3, -1)[:, 0].flatten(0, 1)
    assert torch.allclose(
        torch.cdist(upright, upright), torch.cdist(small.flatten(1), small.flatten(1)), atol=1e-3
    )
    energy = x.flatten(0, 1).square().sum(0)
    assert (energy[1:] <= energy[:-1] * (1 + 1e-4)).all() and x.flatten(0, 1).mean(0).abs().max() < 1e-4


def test_smooth_features_forget_where_a_drawing_stands(folder):
    images = drawings(folder)[:, :, 10:-10, 10:-10]
    here, there = (
        torch.nn.functional.pad(images.float(), pad) for pad in ((10, 10, 10, 10), (2, 18, 14, 6))
    )
    for features, least, most in ((principal, 0.3, torch.inf), (smooth, 0, 0.1)):
        x = features(torch.cat([here, there]), d_features=20)
        a, b = x[:48], x[48:]  # 6 characters in 8 orientations, then the same, moved
        moved = (a - b).square().sum() / (a - a.mean((0, 1))).square().sum()
        assert least <= moved < most, features


def test_smooth_features_turn_with_the_picture(folder):
    images = drawings(folder)[:2]
    x = smooth(torch.cat([images, oriented(images, 5)]), d_features=20)
    assert all(torch.allclose(x[8 * c + 5], x[8 * (2 + c)], atol=1e-3) for c in (0, 1))


@pytest.mark.parametrize("d_features", [0, 785])
def test_more_components_than_pixels_are_refused(folder, d_features):
    with pytest.raises(ValueError, match=f"expected d_features of 1 … 784, got {d_features}"):
        principal(drawings(folder), d_features)


def test_the_components_are_those_of_all_pictures_in_all_orientations(folder):
    """Slow twin: every picture turned, then one singular value decomposition."""
    images = drawings(folder)
    few = module.small(images).flatten(0, 1)
    views = torch.stack([oriented(few, orientation).flatten(1) for orientation in range(8)], 1).double()
    centred = views - views.mean((0, 1))
    _, values, axes = torch.linalg.svd(centred.flatten(0, 1), full_matrices=False)
    d = max(d for d in range(2, 13) if values[d - 1] > 1.01 * values[d])  # equal ones are not to be parted
    x = principal(images, d_features=d)
    energy = x.flatten(0, 1).double().square().sum(0)
    assert torch.allclose(energy, values[:d].square(), rtol=1e-4)
    wanted = (centred @ axes[:d].T).flatten(0, 1)
    got = x.view(6, 8, 3, d).transpose(1, 2).flatten(0, 2).double()
    assert torch.allclose(torch.cdist(got, got), torch.cdist(wanted, wanted), atol=1e-3)


def test_pictures_are_the_drawings_made_small_in_the_order_of_the_classes(folder):
    source, images = omniglot(folder), drawings(folder)
    for class_, index in ((0, 0), (13, 2), (47, 1)):
        upright = images[class_ // 8, index].float()
        wanted = torch.nn.functional.adaptive_avg_pool2d(oriented(upright, class_ % 8)[None], 28)[0]
        assert torch.allclose(source.picture(class_, index), wanted, atol=0.5 / 255 + 1e-6)


def test_a_folder_named_by_the_environment_is_the_source(folder, monkeypatch):
    monkeypatch.setenv("ICLKIT_OMNIGLOT", str(folder))
    source = omniglot()
    assert (source.n_classes, source.n_exemplars, source.d_features) == (48, 3, 64)
    assert source.table.square().sum(-1).mean().sqrt().item() == pytest.approx(4, rel=1e-4)
    assert repr(source) == repr(omniglot(folder))
    batch = FewShot(source, batch_size=4).batch(0, 0)
    assert batch.inputs.shape == (4, 5, 65)
    with pytest.raises(ValueError, match="features must be one of principal, smooth, resnet18; got 'pixels'"):
        omniglot(features="pixels")


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of the archives in tmp_path/served, on this machine alone; requests are counted by path."""
    served, asked = tmp_path / "served", Counter()
    served.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked[self.path] += 1
            super().do_GET()

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=served)
    ) as http_:
        threading.Thread(target=http_.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{http_.server_address[1]}/"
        monkeypatch.setattr(module, "URL", url)
        monkeypatch.delenv("ICLKIT_OMNIGLOT", raising=False)
        monkeypatch.setenv("ICLKIT_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("ICLKIT_BUILD", "0")
        yield served, url, asked
        http_.shutdown()


def published(served, monkeypatch) -> None:
    """Serve two archives under the true names, with their checksums in place of the true ones."""
    for number, name in enumerate(module.SMALL):
        content = archive(served / name, tree(10 * number, 2))
        monkeypatch.setitem(module.SHA256, name, hashlib.sha256(content).hexdigest())


def test_archives_are_downloaded_once_and_checked(server, tmp_path, monkeypatch):
    served, _, asked = server
    published(served, monkeypatch)
    first = omniglot()
    module.table.cache_clear()
    assert first.n_classes == 32 and repr(omniglot()) == repr(first)
    assert asked == {f"/{name}": 1 for name in module.SMALL}
    assert {path.name for path in (tmp_path / "cache/omniglot").iterdir()} == set(module.SMALL)


def test_the_whole_archives_are_fetched_on_request_and_kept_apart(server, tmp_path, monkeypatch):
    served, _, asked = server
    for number, name in enumerate(module.PICTURES):
        archive(served / name, tree(10 * number, 3))
        monkeypatch.setitem(module.PICTURES, name, 9)
    assert omniglot(whole=True).n_classes == 48 and not (tmp_path / "cache/omniglot").exists()
    assert asked == {f"/{name}": 1 for name in module.PICTURES}


def test_a_damaged_copy_is_fetched_anew(server, tmp_path, monkeypatch):
    served, url, asked = server
    published(served, monkeypatch)
    path = fetch(module.SMALL[0], tmp_path / "cache", url)
    path.write_bytes(path.read_bytes()[:-7])
    assert fetch(module.SMALL[0], tmp_path / "cache", url).read_bytes() == (served / path.name).read_bytes()
    assert asked[f"/{path.name}"] == 2


def test_what_is_not_the_archive_is_not_kept(server, tmp_path):
    served, url, _ = server
    archive(served / module.SMALL[0], tree(0, 1))
    with pytest.raises(
        OmniglotError,
        match="is not the archive images_background_small1.zip .sha256 .*by hand.*ICLKIT_OMNIGLOT",
    ):
        fetch(module.SMALL[0], tmp_path / "cache", url)
    (served / "images_background.zip").write_bytes(b"<html>moved</html>")
    with pytest.raises(
        OmniglotError, match="is not the archive images_background.zip .File is not a zip file"
    ):
        fetch("images_background.zip", tmp_path / "cache", url)
    archive(served / "images_background.zip", tree(0, 2))
    with pytest.raises(OmniglotError, match="holds 6 pictures, expected 19280"):
        fetch("images_background.zip", tmp_path / "cache", url)
    assert not (tmp_path / "cache").exists()


def test_no_network_is_one_clear_error(server, tmp_path):
    _, url, _ = server
    with pytest.raises(OmniglotError, match="cannot download it .*404.*by hand.*ICLKIT_OMNIGLOT"):
        fetch(module.SMALL[0], tmp_path, url)
    with pytest.raises(OmniglotError, match="cannot download it .*by hand"):
        fetch(module.SMALL[0], tmp_path, "http://127.0.0.1:1/")


def test_builds_download_nothing(server, monkeypatch):
    served, _, asked = server
    published(served, monkeypatch)
    monkeypatch.setenv("ICLKIT_BUILD", "1")
    with pytest.raises(OmniglotError, match="download nothing; set ICLKIT_OMNIGLOT"):
        omniglot()
    assert not asked


def test_a_wrong_folder_is_one_clear_error(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(OmniglotError, match="holds no drawings; expected images_"):
            omniglot(folder)


def test_a_broken_archive_is_one_clear_error(folder):
    whole = (folder / module.SMALL[0]).read_bytes()
    for broken in (whole[: len(whole) // 2], b"", whole.replace(stroke(0)[-60:-20], b"x" * 40)):
        (folder / module.SMALL[0]).write_bytes(broken)
        with pytest.raises(OmniglotError, match="is broken .*fetch it anew"):
            drawings(folder)


def test_broken_or_missing_pictures_are_one_clear_error(folder):
    first = module.SMALL[0]
    for files, message in (
        (
            {**tree(0, 2), "Signs/character01/0000_02.png": b"no picture"},
            "picture of .*character01 is broken",
        ),
        (
            {**tree(0, 2), "Signs/character01/0000_02.png": stroke(0, 28)},
            r"is \(28, 28\), expected 105 × 105",
        ),
        (dict(list(tree(0, 2).items())[:-1]), "as many drawings; .* has 2 in .*character02, 3 in"),
    ):
        archive(folder / first, files)
        with pytest.raises(OmniglotError, match=message):
            drawings(folder)


@pytest.mark.skipif("ICLKIT_OMNIGLOT" not in os.environ, reason="ICLKIT_OMNIGLOT names no folder of drawings")
def test_the_small_archives_hold_242_characters():
    source = omniglot()
    assert (source.n_classes, source.n_exemplars) == (1936, 20)
