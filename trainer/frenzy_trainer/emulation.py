"""Give a user's script an emulated device: a memory limit and a speed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from frenzy_trainer.accountant import Accountant
from frenzy_trainer.environment import Emulation
from frenzy_trainer.pacing import Pacer


@contextmanager
def emulated_device(emulation: Emulation, rank: int) -> Iterator[Accountant]:
    """Account for every tensor made inside, and slow every optimizer step down to the speed."""
    pacer = Pacer(emulation.speed)

    def after_step(_optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:  # noqa: ANN401 - torch's
        pacer.finish()
        pacer.start()

    hook = register_optimizer_step_post_hook(after_step)
    try:
        with Accountant(emulation.memory_bytes, device=rank) as accountant:
            yield accountant
    finally:
        hook.remove()
