#!/usr/bin/env python3
"""Writes scikit-learn's handwritten digits as files in MNIST's format: 1,797 gray images of 8x8 pixels.

  make_digits.py FOLDER [--png]     --png: also as PNG files, FOLDER/png/{train,test}/LABEL/NUMBER.png (needs Pillow)

Every fifth image is for the test: train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, test-images-..., test-labels-...
The images are those of E. Alpaydin and C. Kaynak, "Optical recognition of handwritten digits", UCI repository (CC BY 4.0),
of which scikit-learn contains a part; needs scikit-learn (./scripts/setup.sh --test).
"""

import argparse
import gzip
import struct
from pathlib import Path

EVERY = 5
BRIGHTEST = 16  # of the data set's pixels


def idx(array):
    head = struct.pack(">BBBB", 0, 0, 0x08, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype("uint8").tobytes()


def write_gz(path, data):
    with open(path, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        packed.write(data)


def write_png(folder, images, labels):
    from PIL import Image
    for number, (image, label) in enumerate(zip(images, labels)):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / str(label) / f"{number:04}.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--png", action="store_true")
    arguments = parser.parse_args()
    from sklearn.datasets import load_digits
    digits = load_digits()
    images = (digits.images * 255 / BRIGHTEST).round().astype("uint8")
    parts = {"train": [i for i in range(len(images)) if i % EVERY != 0], "test": range(0, len(images), EVERY)}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for part, numbers in parts.items():
        numbers = list(numbers)
        write_gz(arguments.folder / f"{part}-images-idx3-ubyte.gz", idx(images[numbers]))
        write_gz(arguments.folder / f"{part}-labels-idx1-ubyte.gz", idx(digits.target[numbers]))
        if arguments.png:
            write_png(arguments.folder / "png" / part, images[numbers], digits.target[numbers])
        print(f"{part}: {len(numbers)} images")


if __name__ == "__main__":
    main()
