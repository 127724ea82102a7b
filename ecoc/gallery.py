"""One HTML page of pictures with their captions, to look at or to send: all is in the one file, nothing is fetched.

>>> write_gallery("page.html", "My run", [Entry("cat.jpg", Path("cat.jpg"), [("a cat on a sofa", -7.31)])])
"""

import base64
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

_SIDE = 640  # pixels of an embedded picture's long side, at most
_SMALL = 128  # up to here a picture is a drawing or an icon: kept exactly, and enlarged without blur
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --page: #f4f4f1; --card: #fff; --well: #e9e9e4; --line: #dcdcd6; --text: #1c1c1a;
  --quiet: #62625c; --bad: #9c2f1f; }}
@media (prefers-color-scheme: dark) {{ :root {{ --page: #151516; --card: #202022; --well: #19191b; --line: #38383c;
  --text: #ececea; --quiet: #a3a3a0; --bad: #f0937f; }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: 80rem; padding: 2rem clamp(1rem, 2.5vw, 2rem) 3rem; background: var(--page);
  color: var(--text); font: 1rem/1.45 system-ui, sans-serif; overflow-wrap: anywhere; }}
h1, h2, h3, p, ul, ol {{ margin: 0; padding: 0; }}
h1 {{ font-size: 1.6rem; line-height: 1.25; }}
.note {{ margin-top: .4rem; max-width: 45rem; color: var(--quiet); white-space: pre-line; }}
main {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); gap: 1.25rem;
  align-items: start; margin-top: 1.5rem; }}
article {{ min-width: 0; overflow: hidden; background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; break-inside: avoid; }}
.picture {{ display: block; width: 100%; height: auto; aspect-ratio: 4 / 3; object-fit: contain;
  background: var(--well); }}
.small {{ image-rendering: pixelated; }}
.unreadable {{ display: grid; place-content: center; padding: 1rem; text-align: center; color: var(--bad); }}
.words {{ display: grid; gap: .5rem; padding: .9rem 1rem; }}
.words h2 {{ font-size: 1.1rem; font-weight: 600; line-height: 1.35; }}
details, .score, .said, footer, .skipped {{ font-size: .875rem; color: var(--quiet); }}
summary {{ cursor: pointer; }}
details ol {{ list-style: none; }}
details li {{ display: flex; justify-content: space-between; gap: 1rem; padding-top: .35rem; }}
.score {{ flex: none; font-variant-numeric: tabular-nums; }}
h3 {{ font-size: inherit; font-weight: 600; }}
.said ul, .skipped ul {{ padding-left: 1.1rem; }}
footer {{ padding-top: .5rem; border-top: 1px solid var(--line); font-size: .8rem; }}
.skipped {{ margin-top: 2rem; }}
.skipped h2 {{ font-size: 1.1rem; color: var(--text); }}
</style>
</head>
<body>
<h1>{title}</h1>
"""


@dataclass(frozen=True)
class Entry:
    """A picture and what was said of it.

    Args:
        name: Shown small, as the file's name.
        picture: A file, or the pixels themselves, ``(height, width, 3)`` uint8.
        sentences: From the best down, each with its score.
        references: What people said, if known.
    """

    name: str
    picture: Path | np.ndarray
    sentences: Sequence[tuple[str, float]]
    references: Sequence[str] = ()


def write_gallery(
    path: str | Path,
    title: str,
    entries: Sequence[Entry],
    note: str = "",
    skipped: Sequence[tuple[str, str]] = (),
) -> None:
    """Write the page. It appears under its name only when it is complete.

    Args:
        path: The file, whose folder is made if missing.
        title: The page's title and heading.
        entries: One card each, in this order. A file that cannot be read gets a card that says so.
        note: Shown below the title.
        skipped: Names of pictures that have no card, each with the reason; listed at the end.

    Raises:
        ValueError: The path is a folder, Pillow is missing, or an array is no picture.
    """
    path = check_page(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        # a file name need not be Unicode: what is not becomes "?"
        with partial.open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(_page(title, entries, note, skipped))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def check_page(path: str | Path) -> Path:
    """Where a page can be written; ValueError for a folder."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: is a folder; give a file, such as {path / 'page.html'}")
    return path


def _page(title: str, entries: Sequence[Entry], note: str, skipped: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield _HEAD.format(title=escape(title))
    if note:
        yield f'<p class="note">{escape(note)}</p>\n'
    yield "<main>\n"
    for entry in entries:
        yield _card(entry)
    yield "</main>\n"
    if skipped:
        lines = "".join(f"<li>{escape(name)}: {escape(reason)}</li>\n" for name, reason in skipped)
        yield f'<section class="skipped">\n<h2>Skipped pictures</h2>\n<ul>\n{lines}</ul>\n</section>\n'
    yield "</body>\n</html>\n"


def _card(entry: Entry) -> str:
    sentences = [(escape(sentence) or "(no words)", f"{score:.2f}") for sentence, score in entry.sentences]
    (best, score), *others = sentences or [("(no sentence)", "")]
    parts = [f'<article>\n{picture_tag(entry.picture, best)}\n<div class="words">\n<h2>{best}</h2>\n']
    if score:
        parts.append(f'<p class="score">score {score}</p>\n')
    if others:
        lines = "".join(f'<li>{other} <span class="score">{value}</span></li>\n' for other, value in others)
        count = "1 other sentence" if len(others) == 1 else f"{len(others)} other sentences"
        parts.append(f"<details>\n<summary>{count}</summary>\n<ol>\n{lines}</ol>\n</details>\n")
    if entry.references:
        lines = "".join(f"<li>{escape(reference)}</li>\n" for reference in entry.references)
        parts.append(f'<div class="said">\n<h3>people said</h3>\n<ul>\n{lines}</ul>\n</div>\n')
    parts.append(f"<footer>{escape(entry.name)}</footer>\n</div>\n</article>\n")
    return "".join(parts)


def picture_tag(picture: Path | np.ndarray, alt: str) -> str:
    """The ``img`` tag with the picture inside, or a line that says why there is none."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError as error:
        raise ValueError('pictures need Pillow: pip install "ecoc[captions]"') from error
    from ecoc.data.pictures import on_white

    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
            raise ValueError(f"a picture must be uint8 (height, width, 3), got {picture.dtype} {picture.shape}")
        image = Image.fromarray(picture)
    else:
        try:
            with Image.open(picture) as file:
                file.draft("RGB", (2 * _SIDE, 2 * _SIDE))  # a large JPEG is read at a fraction of its size
                image = on_white(ImageOps.exif_transpose(file))
        except UnidentifiedImageError:
            return _unreadable("not a picture, or of an unknown kind")
        except OSError as error:
            return _unreadable(error.strerror or str(error))
        except Exception as error:  # decoders raise anything on a damaged file: SyntaxError, struct.error, ...
            return _unreadable(str(error))
    image.thumbnail((_SIDE, _SIDE))
    plain = Image.new("RGB", image.size, "white")  # a new one, so that no place or comment of the file is passed on
    plain.paste(image)
    small, data = max(plain.size) <= _SMALL, io.BytesIO()
    plain.save(data, "PNG" if small else "JPEG", quality=80)
    kind, looks = ("png", "picture small") if small else ("jpeg", "picture")
    source = f"data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode()}"
    size = f'width="{plain.width}" height="{plain.height}"'
    return f'<img class="{looks}" {size} alt="{alt}" loading="lazy" src="{source}">'


def _unreadable(reason: str) -> str:
    return f'<p class="picture unreadable">This picture cannot be read: {escape(reason)}</p>'
