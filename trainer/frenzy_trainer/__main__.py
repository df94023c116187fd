"""``python -m frenzy_trainer``: one rank of a built-in training job."""

import sys

from frenzy_trainer.app import main

if __name__ == "__main__":
    sys.exit(main())
