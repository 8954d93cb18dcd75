"""Check programs on pages such as README.md for type errors: what plait's users see.

    check_types.py PAGE...

Exit code: mypy's.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def main(pages):
    """Each block is a program of its own."""
    with tempfile.TemporaryDirectory() as folder:
        programs = []
        for page in map(Path, pages):
            for i, text in enumerate(BLOCK.findall(page.read_text())):
                programs.append(Path(folder) / f"{page.stem.lower()}_{i}.py")
                programs[-1].write_text(text)
        command = [sys.executable, "-m", "mypy", "--cache-dir", f"{folder}/cache", *programs]
        return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
