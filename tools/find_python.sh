#!/bin/sh
# Prints a Python >= 3.11 that can make an environment: the one given, else the first of the usual names.
#
#   find_python.sh [PYTHON]    find_python.sh newest|oldest    of those on PATH, of pyenv and of uv
versions="3.14 3.13 3.12 3.11"
managed()
{
    for python in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1."*/bin/python3 \
        "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}/cpython-$1."*/bin/python3; do
        [ -x "$python" ] && echo "$python"
    done
}
case ${1:-} in
newest) order=$versions ;;
oldest) order="3.11 3.12 3.13 3.14" ;;
*) order= ;;
esac
if [ -n "$order" ]; then
    candidates=$(for v in $order; do echo "python$v"; managed "$v"; done; echo python3)
else
    candidates=${1:-$(echo python3; for v in $versions; do echo "python$v"; done)}
fi
for python in $candidates; do
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
