"""Entry point of `python -m tf_executor`; agents start the bundle file instead."""

from __future__ import annotations

import sys

from tf_executor.main import main

sys.exit(main())
