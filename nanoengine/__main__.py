"""`python -m nanoengine` is the command `nanoengine`."""

import sys

from nanoengine.cli import main

if __name__ == "__main__":
    sys.exit(main())
