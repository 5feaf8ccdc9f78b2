"""`python -m dcos_command`: same as the installed sub-command."""

import sys

from dcos_command.main import main

if __name__ == "__main__":
    sys.exit(main())
