"""The library's own declaration of XLA's FFI agrees with the installed jaxlib."""

import pathlib
import shutil
import subprocess

import jax
import pytest

ROOT = pathlib.Path(__file__).parents[2]
COMPILER = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)


def compile_check(tmp_path, text):
    """Compile the comparison with `text` in place of the ABI header; return (ok, message)."""
    (tmp_path / "ffi").mkdir(exist_ok=True)
    (tmp_path / "ffi" / "abi.h").write_text(text)
    command = [COMPILER, "-std=c11", "-fsyntax-only", f"-I{tmp_path}", f"-I{ROOT / 'include'}"]
    command += ["-isystem", jax.ffi.include_dir(), str(ROOT / "tests/python/abi_check.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stderr


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_abi_header_agrees_with_jaxlib(tmp_path):
    ok, message = compile_check(tmp_path, (ROOT / "src/ffi/abi.h").read_text())
    assert ok, message


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_abi_check_finds_a_planted_difference(tmp_path):
    text = (ROOT / "src/ffi/abi.h").read_text()
    ok, message = compile_check(tmp_path, text.replace("int64_t rank;", "int32_t rank;"))
    assert not ok and "plait_ffi_buffer_t" in message
