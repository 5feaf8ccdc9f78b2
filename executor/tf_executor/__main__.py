"""`python -m tf_executor`; in the bundle the agent runs the file itself."""

from __future__ import annotations

import sys

from tf_executor.main import main

sys.exit(main())
