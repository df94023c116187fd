"""What runs inside a rank: training, the memory accountant, reports.

A user's script imports this package as ``ft`` for the functions below. It stays light: torch
is imported only by the modules that train.
"""

from frenzy_trainer.api import checkpoint, checkpoint_dir, plan, report, resume_from

__all__ = ["checkpoint", "checkpoint_dir", "plan", "report", "resume_from"]
