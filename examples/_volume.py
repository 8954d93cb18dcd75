"""The data of the deblurring example: a real MRI volume, and the sizes it is padded to."""

import importlib.util
from pathlib import Path

import numpy as np

MNI152_T1 = "datasets/data/mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz"


def load(cut=None):
    """The MNI152 T1 template at 1 mm (197 x 233 x 189), scaled to [0, 1]; or a cube from it.

    The file is part of the nilearn package; nothing is downloaded.
    """
    package = importlib.util.find_spec("nilearn")
    if package is None:
        raise SystemExit("this example needs nilearn, for its data: pip install 'plait[demo]'")
    import nibabel

    image = nibabel.load(Path(package.submodule_search_locations[0]) / MNI152_T1)
    volume = np.asarray(image.dataobj, dtype=np.float32)
    volume /= volume.max()
    if cut is not None:
        volume = volume[tuple(_middle(n, cut) for n in volume.shape)]
    return np.ascontiguousarray(volume)


def _middle(n, cut):
    start = max(0, (n - cut) // 2)
    return slice(start, start + min(n, cut))


def next_size(n):
    """The least size of at least `n` with no primes but 2, 3, 5 and 7: fast to transform."""
    while not _is_smooth(n):
        n += 1
    return n


def _is_smooth(n):
    for prime in (2, 3, 5, 7):
        while n % prime == 0:
            n //= prime
    return n == 1


def with_margin(shape, margin):
    """Sizes with at least `margin` empty voxels, whatever the number of devices."""
    return tuple(next_size(n + m) for n, m in zip(shape, margin, strict=True))


def embed(volume, shape):
    """The volume in the corner of a larger volume of zeros."""
    larger = np.zeros(shape, volume.dtype)
    larger[tuple(slice(n) for n in volume.shape)] = volume
    return larger


def psnr(volume, truth):
    """Peak signal to noise ratio in dB, for a peak of 1."""
    return float(-10 * np.log10(np.mean(np.square(volume - truth, dtype=np.float64))))
