"""`python -m bench`: the same as the installed `mesh-bench`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
