"""Make `fashion_mnist_subset.npz`, the data that ships with minilayup, from the four original files.

    python data/make_fashion_mnist.py [folder with the .gz files] [--out FILE]

The folder is Debian's /usr/share/datasets/fashion-mnist (package dataset-fashion-mnist) if none is given;
torchvision's `FashionMNIST/raw` works too. Of each class the first 1,000 training and the first 200 test pictures are
taken, in file order, and then shuffled once with a fixed seed. The same files give the same bytes (with the same
deflate library; another one may pack the same pictures into other bytes, so minilayup checks the contents' hash).

Source: Fashion-MNIST, Xiao, Rasul and Vollgraf 2017, arXiv 1708.07747, MIT licence (see FASHION_MNIST_LICENSE).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
OUT = Path(__file__).resolve().parent / "fashion_mnist_subset.npz"
PER_CLASS = {"train": 1_000, "t10k": 200}
SEED = 2017


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read one gzipped idx file of bytes: pictures [N, 28, 28] or labels [N]."""
    raw = gzip.decompress(path.read_bytes())
    if raw[:3] != b"\x00\x00\x08":
        raise SystemExit(f"{path} is not an idx file of unsigned bytes.")
    dims = raw[3]
    shape = np.frombuffer(raw, ">i4", count=dims, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)


def subset(folder: Path) -> dict[str, NDArray[np.uint8]]:
    """Take the first pictures of each class: train_x [10000, 28, 28], train_y, test_x [2000, 28, 28], test_y."""
    arrays = {}
    for part, name in (("train", "train"), ("t10k", "test")):
        x = read_idx(folder / f"{part}-images-idx3-ubyte.gz")
        y = read_idx(folder / f"{part}-labels-idx1-ubyte.gz")
        rows = np.concatenate([np.flatnonzero(y == label)[: PER_CLASS[part]] for label in range(10)])
        # RandomState's stream is frozen by NumPy's promise; Generator's may change between releases.
        rows = np.random.RandomState(SEED).permutation(rows)
        arrays[f"{name}_x"], arrays[f"{name}_y"] = x[rows], y[rows]
    return arrays


def contents_sha256(arrays: dict[str, NDArray[np.uint8]]) -> str:
    """The hash that `minilayup.data` checks: of the arrays' bytes, in the order of their names."""
    return hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()


def write_npz(path: Path, arrays: dict[str, NDArray[np.uint8]]) -> None:
    """Write what np.savez_compressed would, without the time of day and the system's name in the zip's headers."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0))
            archive.writestr(entry, buffer.getvalue(), compresslevel=9)


def main() -> None:
    """Read the folder, write the file, print its size and hashes."""
    parser = argparse.ArgumentParser(description="Make fashion_mnist_subset.npz from the original files.")
    parser.add_argument("folder", type=Path, nargs="?", default=DEBIAN, help=f"the four .gz files ({DEBIAN})")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where to write ({OUT.name} beside this script)")
    arguments = parser.parse_args()
    try:
        arrays = subset(arguments.folder)
    except FileNotFoundError as error:
        raise SystemExit(
            f"{error.filename} is missing. Install Debian's package dataset-fashion-mnist, or download the four files "
            "listed at https://github.com/zalandoresearch/fashion-mnist and give their folder."
        ) from None
    write_npz(arguments.out, arrays)
    content = arguments.out.read_bytes()
    print(f"{arguments.out}: {len(content):,} bytes")
    print(f"SHA-256 of the file      {hashlib.sha256(content).hexdigest()}")
    print(f"SHA-256 of the contents  {contents_sha256(arrays)}")


if __name__ == "__main__":
    main()
