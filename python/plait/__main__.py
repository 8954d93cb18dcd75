"""``python -m plait``: the command line."""

import sys

from plait.cli import main

sys.exit(main())
