"""Print the requirements of plait and of the extras named on the command line, one a line.

--oldest: prints only plait's own requirements, at the oldest versions that it declares.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(__file__).parent.parent.joinpath("pyproject.toml").read_text())[
    "project"
]
is_oldest = "--oldest" in sys.argv
lines = [line.replace(">=", "==") if is_oldest else line for line in project["dependencies"]]
for extra in sys.argv[1:]:
    if extra != "--oldest":
        lines += project["optional-dependencies"][extra]
print("\n".join(dict.fromkeys(lines)))
