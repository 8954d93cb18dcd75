"""The file of a trace: whether one is asked for."""

from collections.abc import Mapping


def asked_for(environment: Mapping[str, str]) -> str:
    """The file that PLAIT_TRACE names; "" if it is off, by the same words as in C."""
    name = environment.get("PLAIT_TRACE", "")
    return "" if name.lower() in ("0", "false", "off") else name
