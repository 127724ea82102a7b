"""Captions in Karpathy's layout, features in every format, and batches of both."""

import gzip
import json
import sys
from collections import Counter

import numpy as np
import pytest
import torch

from ecoc.data import EOS, Vocabulary
from ecoc.data.caption_batches import CaptionBatches
from ecoc.data.captions import _SPLIT_OF, CaptionedImage, Features, open_captions, tokenise_caption

SPLITS = ["train", "restval", "train", "val", "test", "train", "restval", "test"]


def entry(number, split):
    sentences = [f"a cat number {word} sat" + " down" * (word % 4) for word in range(number % 3 + 1)]
    return {
        "cocoid": 1000 - number,
        "imgid": number,
        "filename": f"picture {number}.jpg",
        "split": split,
        "sentences": [{"raw": f"{text}.", "tokens": text.split()} for text in sentences],
    }


@pytest.fixture
def entries():
    return [entry(number, split) for number, split in enumerate(SPLITS)]


@pytest.fixture
def write(tmp_path):
    """Write captions and features; the name of the features' file says the format."""

    def write(entries, features="feats.npy", **arrays):
        captions = tmp_path / "captions.json"
        captions.write_text(json.dumps({"images": entries}))
        path = tmp_path / features
        if path.suffix == ".npy":
            np.save(path, arrays.get("feats", table(len(entries))))
        elif path.suffix == ".npz":
            np.savez_compressed(path, **arrays)
        else:
            h5py = pytest.importorskip("h5py", reason="needs pip install h5py")
            with h5py.File(path, "w") as file:
                for name, array in arrays.items():
                    text = np.asarray(array).dtype.kind == "U"
                    file[name] = [str(one).encode() for one in array] if text else array
        return captions, path

    return write


def table(rows, *shape, dtype=np.float16):
    """Row i holds 8 i, 8 i + 1, ..., so that a row tells its number."""
    return np.arange(rows * 8, dtype=dtype).reshape(rows, *(shape or (8,)))


def numbers(data):
    """The number of each image, by its features."""
    images = [image for split in data.images.values() for image in split]
    return {image.id: int(data.features.of([image]).flatten()[0]) // 8 for image in images}


# --- captions


def test_images_go_to_their_splits_and_restval_to_train(entries, write):
    data = open_captions(*write(entries), min_count=1)
    assert {split: [image.id for image in images] for split, images in data.images.items()} == {
        "train": [1000, 999, 998, 995, 994],
        "val": [997],
        "test": [996, 993],
    }
    assert data.images["train"][1] == CaptionedImage(
        999,
        "picture 1.jpg",
        "restval",
        [["a", "cat", "number", "0", "sat"], ["a", "cat", "number", "1", "sat", "down"]],
    )
    assert data.skipped == []
    assert repr(data) == "CaptionData(captions: 10 words, 5 + 1 + 2 images, features (8,))"


def test_the_vocabulary_is_that_of_the_training_captions(entries, write):
    entries[3]["sentences"] = [{"tokens": ["zebra"] * 9}]
    data = open_captions(*write(entries), min_count=3)
    seen = [image for image in entries if image["split"] in ("train", "restval")]
    training = [one["tokens"] for image in seen for one in image["sentences"]]
    counts = Counter(word for tokens in training for word in tokens) + Counter({EOS: len(training)})
    assert data.vocabulary == Vocabulary.build(counts, min_count=3)
    assert "zebra" not in data.vocabulary and data.vocabulary.counts[data.vocabulary.eos] == len(training)
    mine = Vocabulary.build({"zebra": 1})
    assert open_captions(*write(entries), vocabulary=mine).vocabulary is mine


@pytest.mark.parametrize("drop", [(), ("cocoid",), ("cocoid", "imgid")])
def test_the_id_is_the_first_of_cocoid_imgid_and_filename(entries, write, drop):
    kept = [{key: value for key, value in one.items() if key not in drop} for one in entries]
    image = open_captions(*write(kept), min_count=1).images["val"][0]
    assert image.id == [997, 3, "picture 3.jpg"][len(drop)]


def test_raw_text_is_tokenised_where_there_are_no_tokens(entries, write):
    entries[3]["sentences"] = [{"raw": "A man's dog -- the BIG one -- ran."}, {"raw": "..."}]
    data = open_captions(*write(entries), min_count=1)
    assert data.images["val"][0].captions == [["a", "mans", "dog", "the", "big", "one", "ran"]]


def test_gzip_is_told_by_content(entries, write):
    captions, features = write(entries)
    plain = open_captions(captions, features, min_count=1)
    captions.write_bytes(gzip.compress(captions.read_bytes()))
    assert open_captions(captions, features, min_count=1).images == plain.images


def test_progress_goes_to_standard_error(entries, write, capsys):
    open_captions(*write(entries), min_count=1, progress=True)
    shown = capsys.readouterr()
    assert not shown.out and "captions.json" in shown.err


# --- features


@pytest.mark.parametrize("suffix", ["npz", "h5"])
@pytest.mark.parametrize("kind", ["cocoid", "imgid", "filename", "ids: cocoid", "ids: imgid", "ids: stem", "each"])
def test_features_find_their_images_in_any_order(entries, write, suffix, kind):
    order = np.array([3, 1, 0, 2, 7, 6, 5, 4])
    stems = [one["filename"][:-4] for one in entries]
    ids = stems if "stem" in kind else [one[kind.split()[-1] if kind != "each" else "cocoid"] for one in entries]
    if kind == "each":
        arrays = {str(ids[row]): table(8)[row] for row in order}
    else:
        arrays = {"feats": table(8)[order], kind.partition(":")[0]: np.array(ids)[order]}
    data = open_captions(*write(entries, f"feats.{suffix}", **arrays), min_count=1)
    assert numbers(data) == {one["cocoid"]: number for number, one in enumerate(entries)}


def test_files_that_coco_renamed_are_found_by_their_number(entries, write):
    names = np.array([f"{one['cocoid']:012d}.jpg" for one in entries])
    data = open_captions(*write(entries, "feats.npz", feats=table(8)[::-1], filename=names[::-1]), min_count=1)
    assert numbers(data) == {one["cocoid"]: number for number, one in enumerate(entries)}


@pytest.mark.parametrize("name", ["feats.npy", "feats.npz", "feats.h5"])
@pytest.mark.parametrize("shape", [(8,), (2, 4)])
def test_features_without_ids_are_in_the_order_of_the_images(entries, write, name, shape):
    stored = table(8, *shape)
    data = open_captions(*write(entries, name, feats=stored), min_count=1)
    assert data.features.shape == shape
    taken = data.features.take([5, 1, 5, 0])  # out of order and repeated
    assert taken.dtype == torch.float32 and taken.numpy() == pytest.approx(stored[[5, 1, 5, 0]])


def test_features_stay_as_stored_until_they_are_asked_for(entries, write):
    npy = open_captions(*write(entries), min_count=1).features.array
    assert isinstance(npy, np.memmap) and npy.dtype == np.float16
    npz = open_captions(*write(entries, "f.npz", feats=table(8)), min_count=1).features.array
    assert isinstance(npz, np.ndarray) and npz.dtype == np.float16


def test_pictures_become_numbers_from_0_to_1():
    pictures = np.full((2, 4, 4, 3), 51, np.uint8)
    assert Features(pictures, {0: 0, 1: 1}).take([1]).unique().tolist() == [pytest.approx(0.2)]


def test_features_that_are_not_finite_are_named():
    with pytest.raises(ValueError, match=r"features of image dog.jpg \(row 2\) are not finite; compute"):
        Features(np.array([[1.0], [2.0], [np.inf]]), {"cat.jpg": 0, "dog.jpg": 2}).take([0, 2])


def test_images_that_lack_something_are_left_out_and_listed(entries, write):
    del entries[0]["split"]
    entries[1]["sentences"] = []
    feats = table(7)
    feats[3, 1] = np.nan
    paths = write(entries, "f.npz", feats=feats, cocoid=[one["cocoid"] for one in entries[:-1]])
    data = open_captions(*paths, min_count=1)
    assert [one[:2] for one in data.skipped] == [
        (1000, "without a split"),
        (999, "without captions"),
        (997, "with features that are not finite"),
        (993, "without features"),
    ]
    assert [one.split for one in data.skipped] == ["", *(_SPLIT_OF[entries[n]["split"]] for n in (1, 3, 7))]
    assert sorted(numbers(data)) == [994, 995, 996, 998]
    assert "4 skipped" in repr(data)


def test_what_is_missing_or_null_is_made_up_for(entries, write):
    entries[0] |= {"cocoid": None, "imgid": 5}
    entries[1]["sentences"] = None
    entries[2]["sentences"] = [{"tokens": None, "raw": "A dog!"}, {"tokens": "a cat"}]
    data = open_captions(*write(entries, "f.npz", feats=table(8)), min_count=1)
    images = {image.id: image for split in data.images.values() for image in split}
    assert 5 in images and data.skipped == [(999, "without captions", data.skipped[0].split)]
    assert images[998].captions == [["a", "dog"], ["a", "cat"]]


def test_ids_that_could_be_two_things_are_refused(entries, write):
    for number, entry in enumerate(entries):
        entry |= {"cocoid": number + 1, "imgid": number}
    paths = write(entries, "f.npz", feats=table(7), ids=[*range(1, 8)])
    with pytest.raises(ValueError, match="its ids could be cocoid or imgid, which name other images"):
        open_captions(*paths, min_count=1)


def test_a_folder_of_images_is_told_what_makes_features_of_it(entries, write, tmp_path):
    paths = write(entries, "f.npz", feats=table(8))
    with pytest.raises(ValueError, match="a folder; make features of its images with `ecoc features"):
        open_captions(paths[0], tmp_path, min_count=1)


# --- bad input


def change(entries, what):
    if what == "split":
        entries[2]["split"] = "holdout"
    elif what == "id":
        entries[2] = {"split": "train", "sentences": []}
    elif what == "twice":
        entries[2]["cocoid"] = 1000
    elif what == "sentence":
        entries[2]["sentences"] = [{"text": "hi"}]
    elif what == "splits":
        for one in entries:
            del one["split"]
    elif what == "train":
        for one in entries:
            one["split"] = "val"


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("split", r"captions.json: images\[2\] has the unknown split 'holdout'; use train, restval, val, test"),
        ("id", r"images\[2\] has no cocoid, imgid or filename; give each image an id"),
        ("twice", r"images\[2\] has the id 1000 of another image"),
        ("sentence", r"images\[2\] has a sentence without tokens or raw text; give"),
        ("splits", r"no image is left \(8 without a split\); give"),
        ("train", r"0 word\(s\) occur 1 times or more in the captions of split train; give"),
    ],
)
def test_wrong_captions_are_named(entries, write, what, message):
    change(entries, what)
    with pytest.raises(ValueError, match=message) as caught:
        open_captions(*write(entries), min_count=1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file; give captions as JSON"),
        (b"", "no JSON, or damaged"),
        (b'{"images": [', "no JSON, or damaged"),
        (b"\xff\xfe\x00", "no JSON, or damaged"),
        (gzip.compress(b'{"images": []}' * 99, mtime=0)[:40], "no JSON, or damaged .*; fetch the file again"),
        (b"\x1f\x8b" + bytes(30), "no JSON, or damaged"),
        (b"[1, 2]", "no list of 'images' in it; give captions in Karpathy's layout"),
        (b'{"annotations": []}', "no list of 'images'"),
        (b'{"images": [3]}', "no list of 'images'"),
    ],
)
def test_damaged_captions_give_one_line(tmp_path, entries, write, content, message):
    _, features = write(entries)
    path = tmp_path / "broken.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        open_captions(path, features)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "arrays", "message"),
    [
        ("f.npy", {"feats": table(7)}, "7 rows of features for 8 images in the captions, in whose order"),
        ("f.npz", {"feats": table(7)}, "7 rows of features for 8 images"),
        (
            "f.npz",
            {"feats": table(7), "cocoid": np.arange(8)},
            "7 rows of features for 8 ids beside them; give one row",
        ),
        ("f.h5", {"feats": table(7), "ids": np.arange(8)}, "7 rows of features for 8 ids beside them"),
        ("f.npz", {"feats": table(8), "ids": np.arange(8) // 2}, r"4 id\(s\) have features twice"),
        ("f.npz", {"feats": table(8), "ids": np.arange(8) + 9000}, r"no image is left \(8 without features\); give"),
        ("f.npz", {"1000": table(1)[0], "999": table(2)}, "the shape of '999' is not that of '1000'"),
        ("f.npz", {}, r"no features, or damaged \(nothing is in it\); give"),
        ("f.h5", {}, r"no features, or damaged \(nothing is in it\); give"),
        ("f.npy", {"feats": table(8)[:, 0]}, r"shape \(8,\), not numbers \(N, d\) or \(N, cells, d\)"),
        ("f.npy", {"feats": np.full((8, 2), "x")}, "not numbers"),
    ],
)
def test_features_that_do_not_fit_are_named(entries, write, name, arrays, message):
    with pytest.raises(ValueError, match=message) as caught:
        open_captions(*write(entries, name, **arrays), min_count=1)
    assert "\n" not in str(caught.value) and name in str(caught.value)


@pytest.mark.parametrize("name", ["f.npz", "f.npy", "f.h5"])
@pytest.mark.parametrize("damage", ["cut", "text", "empty", "other format", "missing"])
def test_damaged_features_give_one_line(entries, write, name, damage):
    captions, path = write(entries, name, feats=table(8))
    content = path.read_bytes()
    other = write(entries, "g.npy" if name == "f.npz" else "g.npz", feats=table(8))[1].read_bytes()
    changed = {"cut": content[: len(content) // 2], "text": b"hello\n" * 99, "empty": b"", "other format": other}
    path.unlink()
    if damage != "missing":
        path.write_bytes(changed[damage])
    with pytest.raises(ValueError, match=rf"{name}: no (such file|features, or damaged \(.*\)); give") as caught:
        open_captions(captions, path, min_count=1)
    assert "\n" not in str(caught.value)


def test_an_unknown_format_and_a_missing_h5py_are_named(entries, write, tmp_path, monkeypatch):
    captions, path = write(entries)
    for name in ("f.bin", "f.h5"):
        (tmp_path / name).write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match=r"does not end in \.npz, \.npy, \.h5 or \.hdf5"):
        open_captions(captions, tmp_path / "f.bin")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ValueError, match=r"f\.h5: reading HDF5 needs h5py; pip install h5py"):
        open_captions(captions, tmp_path / "f.h5")


# --- batches


@pytest.fixture
def data(write):
    return open_captions(
        *write([entry(number, "train" if number < 90 else "val") for number in range(91)]), min_count=1
    )


def pairs(data, batches):
    """Each caption of batches as text, with the number of its image; checks layout on the way."""
    found = []
    for rows, features, inputs, targets in batches:
        assert features[:, 0].tolist() == [8 * row for row in rows.tolist()]
        assert inputs.shape == targets.shape and (inputs[:, 0] == data.vocabulary.eos).all()
        assert inputs.dtype == targets.dtype == torch.int64
        for row, given, due in zip(rows.tolist(), inputs.tolist(), targets.tolist(), strict=True):
            length = due.index(data.vocabulary.eos)
            assert given[1 : length + 1] == due[:length]
            assert set(given[length + 1 :]) <= {data.vocabulary.eos} and set(due[length + 1 :]) <= {-100}
            found.append((row, " ".join(data.vocabulary.words_of(due[:length]))))
    return found


def expected_pairs(images):
    return sorted((1000 - image.id, " ".join(tokens)) for image in images for tokens in image.captions)


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_caption_comes_once_with_its_image(data, shuffle):
    batches = CaptionBatches(data, 7, shuffle=shuffle)
    found = list(batches.starting_at(0))
    assert len(found) == len(batches) == 26  # 180 captions
    assert sorted(pairs(data, found)) == expected_pairs(data.images["train"])
    assert sorted(len(batch.rows) for batch in found) == [5] + [7] * 25


def test_a_run_goes_on_at_any_batch_of_any_epoch(data):
    whole = [list(CaptionBatches(data, 7, seed=3).starting_at(0, epoch)) for epoch in range(3)]
    for epoch, step in ((0, 0), (1, 4), (2, 25), (2, 26)):
        rest = list(CaptionBatches(data, 7, seed=3).starting_at(step, epoch))
        assert pairs(data, rest) == pairs(data, whole[epoch][step:])
    orders = {str(pairs(data, epoch)) for epoch in whole}
    other = {str(pairs(data, CaptionBatches(data, 7, seed=4).starting_at(0, epoch))) for epoch in range(3)}
    assert len(orders | other) == 6


def test_captions_of_a_batch_have_similar_lengths(data):
    padded = [(batch.targets == -100).float().mean() for batch in CaptionBatches(data, 20).starting_at(0)]
    assert sum(padded) / len(padded) < 0.05
    lengths = [batch.targets.shape[1] for batch in CaptionBatches(data, 20).starting_at(0)]
    assert lengths != sorted(lengths)


def test_processes_share_each_batch(data):
    whole = list(CaptionBatches(data, 8).starting_at(0))
    parts = [list(CaptionBatches(data, 8, shard=(rank, 4)).starting_at(0)) for rank in range(4)]
    for number, batch in enumerate(whole):
        shared = [pair for part in parts for pair in pairs(data, part[number : number + 1])]
        assert sorted(shared) == sorted(pairs(data, [batch]))
        assert {part[number].inputs.shape[1] for part in parts} == {batch.inputs.shape[1]}
    batches = CaptionBatches(data, 179 * 4, split="val", shard=(1, 4))
    assert len(batches) == 0 and list(batches.starting_at(0)) == []


def test_evaluation_gives_images_in_order_with_their_features(data):
    found = list(data.evaluation("train", 40))
    assert [len(images) for images, _ in found] == [40, 40, 10]
    assert [image for images, _ in found for image in images] == data.images["train"]
    assert torch.cat([features for _, features in found])[:, 0].tolist() == [8.0 * row for row in range(90)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda data: CaptionBatches(data, 0), "batch_size must be at least 1"),
        (lambda data: CaptionBatches(data, 7, shard=(0, 2)), "divisible by the 2 processes, got 7"),
        (lambda data: CaptionBatches(data, 8, shard=(2, 2)), "shard must be"),
        (lambda data: CaptionBatches(data, 8, split="valid"), "split must be one of train, val, test, got 'valid'"),
        (lambda data: CaptionBatches(data, 8, split="test"), "captions: no image of split test; give"),
        (lambda data: CaptionBatches(data, 7).starting_at(27), "step must be 0 to 26"),
        (lambda data: CaptionBatches(data, 7).starting_at(0, -1), "epoch must be 0 or more"),
        (lambda data: data.evaluation("train", 0), "batch_size must be at least 1"),
    ],
)
def test_wrong_arguments_are_named(data, call, message):
    with pytest.raises(ValueError, match=message):
        call(data)


# --- real captions


def test_the_coco_subset_is_as_described(shared_data):
    coco = shared_data / "captions"
    data = open_captions(
        coco / "coco_karpathy_subset.json.gz",
        coco / "coco_effnetlite0_pca512.npz",
    )
    assert repr(data) == (
        "CaptionData(coco_karpathy_subset: 3694 words, 29487 + 4392 + 4407 images, features (512,))"
    )  # 3692 words, <unk> and <eos>
    assert [sum(len(image.captions) for image in data.images[split]) for split in data.images] == [62834, 21960, 22035]
    with np.load(coco / "coco_effnetlite0_pca512.npz") as file:
        row = file["cocoid"].tolist().index(data.images["val"][7].id)
        assert torch.equal(data.features.of(data.images["val"][7:8])[0], torch.from_numpy(file["feats"][row]).float())
    entries = json.loads(gzip.decompress((coco / "coco_karpathy_subset.json.gz").read_bytes()))["images"][::50]
    assert all(tokenise_caption(one["raw"]) == one["tokens"] for image in entries for one in image["sentences"])
