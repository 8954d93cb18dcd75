"""Types of the examples' options: argparse reports at the start what it expects."""

import argparse
import math
from pathlib import Path


def at_least(least):
    """The type of an integer with this lower limit."""

    def integer(text):
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text}; expected {least} or more")
        return value

    return integer


def positive(text):
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}; expected a positive number")
    return value


def file(*endings):
    """The type of a file name with one of these endings. Its folder is made before the work."""

    def name(text):
        if Path(text).suffix not in endings:
            expected = " or ".join(endings)
            raise argparse.ArgumentTypeError(f"{text}; expected a name that ends in {expected}")
        try:
            Path(text).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise argparse.ArgumentTypeError(f"{text}; its folder: {error.strerror}") from None
        return text

    return name


picture = file(".png", ".pdf", ".svg")
picture_or_film = file(".png", ".pdf", ".svg", ".gif")
