"""``python -m frenzy_trainer``: one rank of a built-in training job."""

import os
import sys

from frenzy_trainer.app import main

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is on disk. Taking torch and DeepSpeed apart takes seconds, and the job that this
    # one makes way for, or its own next attempt, waits for that.
    os._exit(code)
