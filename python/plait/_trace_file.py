"""The file that a trace is to become: whether one is asked for."""

from collections.abc import Mapping


def asked_for(environment: Mapping[str, str]) -> str:
    """The file that PLAIT_TRACE names; "" where it is off, by words that C reads as well."""
    name = environment.get("PLAIT_TRACE", "")
    return "" if name.lower() in ("0", "false", "off") else name
