"""Folders, tables, idx and npz as examples; what leads out of them, what is missing, and what is held out."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heed.core.errors import InputError
from heed.data.media.arrays import Member, member, pixels
from heed.data.media.source import MediaFiles
from heed.data.paths import by_split

IMAGE, TEXT = ("image", "label"), ("image", "text")


def photos(root: Path, classes: dict[str, int], suffix: str = ".png") -> Path:
    """Folders of classes with so many files each; what is in the files is of no matter here."""
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            (root / name / f"{number}{suffix}").write_bytes(b"image")
    return root


def idx(path: Path, numbers: np.ndarray[Any, Any]) -> Path:
    head = bytes([0, 0, 8, numbers.ndim]) + b"".join(size.to_bytes(4, "big") for size in numbers.shape)
    data = head + numbers.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_a_folder_of_class_folders(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", {"dog": 20, "cat": 10})
    (folder / "notes.pdf").write_text("x")
    (folder / ".hidden.png").write_text("x")
    source = MediaFiles(train=str(folder))
    train, valid = source.split("train", IMAGE), source.split("valid", IMAGE)
    assert len(train) == 27
    assert len(valid) == 3
    assert {label for _, label in train} == {"cat", "dog"} == {label for _, label in valid}
    assert not {path for path, _ in train} & {path for path, _ in valid}
    assert "1 file of another kind left out" in train.report()
    assert list(MediaFiles(train=str(folder)).split("valid", IMAGE)) == list(valid)  # the data decides, nothing else


def test_folders_of_splits(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        photos(tmp_path / "all" / split, {"a": 3, "b": 3})
    found = by_split(tmp_path / "all", "train")
    assert {name: [Path(path).name for path in paths] for name, paths in found.items()} == {
        "test": ["test"],
        "train": ["train"],
        "valid": ["val"],
    }


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    outside = photos(tmp_path / "outside", {"secret": 2})
    folder = photos(tmp_path / "photos", {"a": 3, "b": 3})
    (folder / "a" / "out.png").symlink_to(outside / "secret" / "0.png")
    (folder / "a" / "circle.png").symlink_to(folder / "a" / "circle.png")
    (folder / "b" / "own.png").symlink_to(folder / "a" / "0.png")
    (folder / "whole").symlink_to(outside / "secret")
    examples = MediaFiles(train=str(folder), held_out=0.0).split("train", IMAGE)
    assert len(examples) == 7  # its own link is one of them
    assert "3 links out of the folder left out" in examples.report()


def test_files_without_a_class_are_refused(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", {"a": 2})
    (folder / "stray.png").write_bytes(b"x")
    with pytest.raises(InputError, match=r"stray\.png, that lie in no folder of a class"):
        MediaFiles(train=str(folder)).split("train", IMAGE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there is no image"):
        MediaFiles(train=str(tmp_path / "empty")).split("train", IMAGE)


def test_the_number_of_files_is_bounded(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", {"a": 4, "b": 4})
    with pytest.raises(InputError, match="data.max_files"):
        MediaFiles(train=str(folder), max_files=5).split("train", IMAGE)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_a_table_of_paths(tmp_path: Path, suffix: str) -> None:
    photos(tmp_path / "shots", {"x": 4})
    rows = [(f"shots/x/{number}.png", f"a photo, number {number}") for number in range(4)]
    lines = {
        "csv": ["path,caption", *(f'{path},"{text}"' for path, text in rows)],
        "tsv": ["image\ttext", *("\t".join(row) for row in rows)],
        "jsonl": [f'{{"file_name": "{path}", "text": "{text}"}}' for path, text in rows],
    }[suffix]
    table = tmp_path / f"table.{suffix}"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    examples = MediaFiles(train=str(table), held_out=0.0).split("train", TEXT)
    assert [(Path(path).relative_to(tmp_path).as_posix(), text) for path, text in examples] == rows


def test_paths_that_lead_out_of_the_table_are_refused(tmp_path: Path) -> None:
    photos(tmp_path / "shots", {"x": 2})
    folder = tmp_path / "inner"
    folder.mkdir()
    table = folder / "table.tsv"
    table.write_text("image\tlabel\n../shots/x/0.png\ta\nnone.png\tb\n")
    with pytest.raises(InputError, match=r"leads out of .*data\.root") as error:
        MediaFiles(train=str(table)).split("train", IMAGE)
    assert "there is no file" in str(error.value)
    assert "2 bad rows" in str(error.value)
    table.write_text("image\tlabel\nshots/x/0.png\ta\nshots/x/1.png\tb\nshots/x/9.png\tb\n")
    given = MediaFiles(train=str(table), root=str(tmp_path), bad_rows="skip", held_out=0.0)
    assert len(given.split("train", IMAGE)) == 2


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "loop"])
def test_names_that_no_disk_takes_are_no_files(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    table = tmp_path / "table.jsonl"
    table.write_text(json.dumps({"image": name, "label": "a"}) + "\n")
    with pytest.raises(InputError, match="there is no file"):
        MediaFiles(train=str(table)).split("train", IMAGE)


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_idx(tmp_path: Path, packed: str) -> None:
    images = np.arange(5 * 3 * 4).reshape(5, 3, 4)
    path = idx(tmp_path / f"train-images-idx3-ubyte{packed}", images)
    idx(tmp_path / f"train-labels-idx1-ubyte{packed}", np.array([0, 1, 2, 1, 0]))
    examples = MediaFiles(train=str(path), held_out=0.0).split("train", IMAGE)
    assert [label for _, label in examples] == ["0", "1", "2", "1", "0"]
    which = member(examples[3][0])
    assert which == Member(str(path), "", 3)
    assert str(which).endswith("[3]")
    assert np.array_equal(pixels(which), images[3])
    assert by_split(tmp_path, "train") == {"train": (str(path),)}


def test_idx_that_is_no_idx(tmp_path: Path) -> None:
    path = idx(tmp_path / "images.idx", np.zeros((5, 3, 4)))
    source = MediaFiles(train=str(path))
    with pytest.raises(InputError, match=r"labels\.idx beside it, which is not there"):
        source.split("train", IMAGE)
    idx(tmp_path / "labels.idx", np.zeros(4))
    with pytest.raises(InputError, match="needed is one for each"):
        MediaFiles(train=str(path)).split("train", IMAGE)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="holds fewer bytes"):
        MediaFiles(train=str(path), held_out=0.2).split("train", IMAGE)
    path.write_bytes(bytes([0, 0, 8, 3]) + (1 << 31).to_bytes(4, "big") * 3)
    with pytest.raises(InputError, match="at most"):
        MediaFiles(train=str(path), held_out=0.3).split("train", IMAGE)
    path.write_bytes(b"GIF89a")
    with pytest.raises(InputError, match="no idx file"):
        MediaFiles(train=str(path), held_out=0.4).split("train", IMAGE)


def test_npz(tmp_path: Path) -> None:
    images, labels = np.arange(4 * 2 * 2 * 3, dtype=np.uint8).reshape(4, 2, 2, 3), np.array([0, 1, 0, 1])
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x_train=images, y_train=labels[:, None], x_test=images[:2], y_test=labels[:2])
    source = MediaFiles(train=str(path), test=str(path), held_out=0.0)
    assert len(source.split("train", IMAGE)) == 4
    assert len(source.split("test", IMAGE)) == 2
    which = member(source.split("test", IMAGE)[1][0])
    assert which is not None
    assert np.array_equal(pixels(which), images[1])
    assert by_split(tmp_path, "train") == {"train": (str(path),), "test": (str(path),)}


def test_npz_with_pickles_or_without_images_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, images=np.array([{"a": 1}], dtype=object), labels=np.array([0]))
    with pytest.raises(InputError, match="Pickled objects are never read"):
        MediaFiles(train=str(path)).split("train", IMAGE)
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(InputError, match="it holds|holds weights"):
        MediaFiles(train=str(path), held_out=0.2).split("train", IMAGE)
    path.write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(InputError, match="cannot be read as npz"):
        MediaFiles(train=str(path), held_out=0.3).split("train", IMAGE)


def test_an_npz_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heed.data.media.arrays.LARGEST", 1000)
    path = tmp_path / "data.npz"
    np.savez_compressed(path, images=np.zeros((100, 8, 8), np.uint8), labels=np.zeros(100, np.uint8))
    assert zipfile.is_zipfile(path)
    with pytest.raises(InputError, match="unpacks to more"):
        MediaFiles(train=str(path)).split("train", IMAGE)


def test_texts_are_not_media_and_media_no_texts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="data.kind=files"):
        MediaFiles(train=str(tmp_path)).split("train", ("source", "target"))
    with pytest.raises(InputError, match="no data to learn from"):
        MediaFiles().split("train", IMAGE)
    (tmp_path / "photo.png").write_bytes(b"x")
    with pytest.raises(InputError, match="no folder of class folders"):
        MediaFiles(train=str(tmp_path / "photo.png")).split("train", IMAGE)
