"""Run `python -m tf_executor`; the agent runs the bundle itself."""

from __future__ import annotations

import sys

from tf_executor.main import main

sys.exit(main())
