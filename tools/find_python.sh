#!/bin/sh
# Prints a Python >= 3.11 that can make an environment: the one given, else the first of the usual names.
for python in ${1:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "$python"
        exit 0
    fi
done
cat >&2 <<'END'
plait needs Python 3.11 or newer with the modules venv and ensurepip (Debian: package python3-venv).
Name one with: make PYTHON=/path/to/python3.11
END
exit 1
