"""`python -m tinycore.device`: the same table as `python -m tinycore devices`."""

from __future__ import annotations

import sys

from tinycore.device.table import main

if __name__ == "__main__":
    sys.exit(main())
