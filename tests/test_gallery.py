import base64
import io
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from ecoc.data.scenes import builtin_scenes
from ecoc.gallery import Entry, write_gallery
from tests.page import Page

Image = pytest.importorskip("PIL.Image")
HOSTILE = """<script>alert("1")</script> & <b a='"'>"""
GREY = np.full((4, 6, 3), 90, np.uint8)
SAID = [("a cat on a sofa", -7.314), ("a dog", -8.0), ("a cat", -12.346)]


def images(page):
    return [values for tag, values, _ in page.tags if tag == "img"]


def page_of(tmp_path, *entries, title="run", **options):
    write_gallery(tmp_path / "page.html", title, entries, **options)
    return Page((tmp_path / "page.html").read_text("utf-8"))


def embedded(tmp_path, picture):
    """The picture as the page has it, and the attributes of its tag."""
    (attributes,) = images(page_of(tmp_path, Entry("name", picture, SAID)))
    kind, data = re.fullmatch("data:image/(png|jpeg);base64,(.*)", attributes["src"]).groups()
    image = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
    assert image.format.lower() == kind
    assert image.size == (int(attributes["width"]), int(attributes["height"]))
    return image, attributes


def saved(tmp_path, image, name="picture.png", **options):
    image.save(tmp_path / name, **options)
    return tmp_path / name


# --- the page


def test_a_card_has_picture_best_sentence_others_with_scores_references_and_name(tmp_path):
    page = page_of(tmp_path, Entry("cat.jpg", GREY, SAID, ["my cat", "a sofa"]), title="my run", note="beam 4")
    assert page.texts("title") == page.texts("h1") == ["my run"]
    assert page.texts("p", **{"class": "note"}) == ["beam 4"]
    assert page.texts("h2") == ["a cat on a sofa"] and page.texts("p")[1:] == ["score -7.31"]
    assert page.texts("summary") == ["2 other sentences"]
    assert page.texts("li") == ["a dog -8.00", "a cat -12.35", "my cat", "a sofa"]
    assert page.texts("h3") == ["people said"] and page.texts("footer") == ["cat.jpg"]
    (image,) = images(page)
    assert image["alt"] == "a cat on a sofa" and image["loading"] == "lazy"


def test_a_card_leaves_out_what_is_not_known(tmp_path):
    page = page_of(tmp_path, Entry("one", GREY, SAID[:1]), Entry("none", GREY, []), Entry("empty", GREY, [("", -0.5)]))
    assert page.texts("h2") == ["a cat on a sofa", "(no sentence)", "(no words)"]
    assert page.texts("p") == ["score -7.31", "score -0.50"]
    assert not {"details", "h3", "li", "section"} & {tag for tag, *_ in page.tags}


def test_cards_keep_their_order_and_skipped_pictures_come_last(tmp_path):
    entries = [Entry(f"{number}.png", GREY, SAID[:2]) for number in (3, 1, 2)]
    page = page_of(tmp_path, *entries, skipped=[("notes.txt", "not a picture"), ("z.png", "empty")])
    assert page.texts("footer") == ["3.png", "1.png", "2.png"] and page.texts("summary") == ["1 other sentence"] * 3
    assert page.texts("h2")[-1] == "Skipped pictures"
    assert page.texts("li")[-2:] == ["notes.txt: not a picture", "z.png: empty"]


def test_the_page_suits_phones_dark_rooms_and_screen_readers(tmp_path):
    page = page_of(tmp_path)
    assert any(tag == "html" and values["lang"] for tag, values, _ in page.tags)
    assert {"charset": "utf-8"} in [values for _, values, _ in page.tags]
    assert any(
        values.get("name") == "viewport" and "width=device-width" in values["content"] for _, values, _ in page.tags
    )
    (style,) = page.texts("style")
    assert "prefers-color-scheme: dark" in style and "overflow-wrap: anywhere" in style
    assert style.count("{") == style.count("}") and "{{" not in style


def test_hostile_words_are_shown_and_never_obeyed(tmp_path):
    words = [(HOSTILE, -1.0), (HOSTILE, -2.0)]
    entries = Entry(HOSTILE, GREY, words, [HOSTILE]), Entry(HOSTILE, tmp_path / HOSTILE.replace("/", ""), words)
    page = page_of(tmp_path, *entries, title=HOSTILE, note=HOSTILE, skipped=[(HOSTILE, HOSTILE)])
    for tag in ("title", "h1", "footer"):
        assert set(page.texts(tag)) == {HOSTILE}
    assert page.texts("h2")[:2] == [HOSTILE] * 2 and HOSTILE in page.texts("p")
    assert page.texts("li") == [f"{HOSTILE} -2.00", HOSTILE, f"{HOSTILE} -2.00", f"{HOSTILE}: {HOSTILE}"]
    assert images(page)[0]["alt"] == HOSTILE
    assert not {"script", "b"} & {tag for tag, *_ in page.tags}


def test_the_reason_why_a_picture_is_unreadable_is_escaped_too(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "open", lambda _: (_ for _ in ()).throw(SyntaxError(HOSTILE)))
    assert HOSTILE in page_of(tmp_path, Entry("a", tmp_path / "a.png", SAID)).texts("p")[0]


def test_nothing_is_fetched_and_nothing_runs(tmp_path):
    picture = saved(tmp_path, Image.new("RGB", (200, 150)), "a.jpg")
    page = page_of(tmp_path, Entry("a", picture, SAID, ["b"]), Entry("b", GREY, SAID), skipped=[("c", "d")])
    text = (tmp_path / "page.html").read_text("utf-8")
    assert not re.search(r"https?://|url\(|@import", text)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, *_ in page.tags}
    links = [(name, value) for _, values, _ in page.tags for name, value in values.items()]
    assert not [name for name, _ in links if name.startswith("on") or name in ("href", "srcset")]
    assert len(images(page)) == 2 and all(value.startswith("data:image/") for name, value in links if name == "src")


# --- pictures


@pytest.mark.parametrize(("size", "shown"), [((1600, 400), (640, 160)), ((500, 2000), (160, 640)), ((300, 200),) * 2])
def test_a_file_becomes_a_jpeg_of_at_most_640_pixels(tmp_path, size, shown):
    image, attributes = embedded(tmp_path, saved(tmp_path, Image.new("RGB", size, (40, 160, 80))))
    assert image.format == "JPEG" and image.size == shown and attributes["class"] == "picture"
    np.testing.assert_allclose(image.getpixel((80, 80)), (40, 160, 80), atol=4)


def test_a_large_array_becomes_a_jpeg_too(tmp_path):
    image, _ = embedded(tmp_path, np.full((900, 1800, 3), 200, np.uint8))
    assert image.format == "JPEG" and image.size == (640, 320)


def test_a_drawn_scene_stays_lossless_and_is_enlarged_sharply(tmp_path):
    scene = builtin_scenes(images=10)[1][3]
    image, attributes = embedded(tmp_path, scene)
    np.testing.assert_array_equal(np.asarray(image), scene)
    assert attributes["class"] == "picture small"
    assert re.search(r"\.small \{ image-rendering: pixelated; \}", (tmp_path / "page.html").read_text("utf-8"))


def test_a_camera_held_sideways_gives_an_upright_picture_without_its_place(tmp_path):
    pixels = np.zeros((200, 400, 3), np.uint8)
    pixels[:, :200] = 255  # white on the left
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "at home"  # turn by a quarter to the right, and a description
    picture = saved(tmp_path, Image.fromarray(pixels), "a.jpg", exif=exif, comment=b"at home")
    image, attributes = embedded(tmp_path, picture)
    assert image.size == (200, 400)
    assert min(image.getpixel((100, 50))) > 250 and max(image.getpixel((100, 350))) < 5  # white on top
    assert b"at home" in picture.read_bytes()
    assert b"at home" not in base64.b64decode(attributes["src"].partition(",")[2])


@pytest.mark.parametrize(("mode", "colour"), [("RGBA", (200, 0, 0, 0)), ("LA", (10, 0)), ("P", 3)])
def test_transparent_is_white(tmp_path, mode, colour):
    image, options = Image.new(mode, (200, 150), colour), {}
    if mode == "P":
        image.putpalette([9] * 768)
        options["transparency"] = colour
    assert min(embedded(tmp_path, saved(tmp_path, image, **options))[0].getpixel((100, 70))) > 250


def test_half_transparent_is_half_white(tmp_path):
    picture = saved(tmp_path, Image.new("RGBA", (20, 20), (200, 0, 100, 128)))
    np.testing.assert_allclose(embedded(tmp_path, picture)[0].getpixel((9, 9)), (227, 127, 177), atol=1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_text("hello"), "not a picture"),
        (lambda path: path.write_bytes(path.read_bytes()[:900]), "truncated"),
        (lambda path: saved(path.parent, Image.new("1", (18000, 10000)), path.name, format="png"), "exceeds limit"),
    ],
)
def test_an_unreadable_file_becomes_a_card_that_says_so(tmp_path, change, reason):
    path = saved(tmp_path, Image.new("RGB", (300, 200)), "a.jpg")
    change(path)
    page = page_of(tmp_path, Entry("a.jpg", path, SAID), Entry("b", GREY, SAID))
    (line,) = page.texts("p", **{"class": "picture unreadable"})
    assert line.startswith("This picture cannot be read: ") and reason in line
    assert str(tmp_path) not in line
    assert page.texts("h2") == ["a cat on a sofa"] * 2 and len(images(page)) == 1


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 4), (0, 6, 3)])
def test_an_array_that_is_no_picture_is_refused(tmp_path, shape):
    with pytest.raises(ValueError, match=r"must be uint8 \(height, width, 3\), got uint8 \("):
        page_of(tmp_path, Entry("a", np.zeros(shape, np.uint8), SAID))
    with pytest.raises(ValueError, match="got float64"):
        page_of(tmp_path, Entry("a", np.zeros((4, 6, 3)), SAID))


def test_missing_pillow_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match=r'^pictures need Pillow: pip install "ecoc\[captions\]"$'):
        page_of(tmp_path, Entry("a", GREY, SAID))


# --- the file


def test_folders_are_made_and_only_the_page_is_left(tmp_path):
    path = tmp_path / "deep" / "er" / "page.html"
    write_gallery(str(path), "run", [Entry("a", GREY, SAID)])
    assert os.listdir(path.parent) == ["page.html"]


def test_the_file_is_utf_8_even_for_a_name_that_is_not(tmp_path):
    name = os.fsdecode("Größe 猫 ".encode() + b"\xff.png")
    assert page_of(tmp_path, Entry(name, GREY, [("ein Kätzchen", -1.0)])).texts("footer") == ["Größe 猫 ?.png"]
    assert "ein Kätzchen".encode() in (tmp_path / "page.html").read_bytes()


@pytest.mark.parametrize("fault", ["entry", "disk"])
def test_a_failed_write_leaves_the_old_page(tmp_path, monkeypatch, fault):
    page_of(tmp_path, title="old")
    before = (tmp_path / "page.html").read_bytes()
    entries = [Entry("a", GREY, SAID)]
    if fault == "entry":
        entries.append(Entry("b", np.zeros(3), SAID))
    else:
        monkeypatch.setattr("ecoc.gallery.os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises((OSError, ValueError), match=r"full|must be uint8"):
        page_of(tmp_path, *entries, title="new")
    assert (tmp_path / "page.html").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_a_folder_is_no_page(tmp_path):
    with pytest.raises(ValueError, match=r"is a folder; give a file, such as .*page\.html"):
        write_gallery(Path(tmp_path), "run", [])
