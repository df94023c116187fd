"""One block on one rank: its widths, its kernels, and which of its matrices are trained."""

from dataclasses import dataclass
from typing import Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Run
from frenzy_marp.core.cases.kernels import Kernels, kernels, torch_from

_NF4: Final = frozenset({word.Quantization.NF4, word.Quantization.NF4_DOUBLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Widths of a block in elements a token, after tensor parallelism.

    ``stream`` is the residual stream's: divided too where sequence parallelism is on.
    ``element`` is the bytes of a computed value.
    """

    run: Run
    kernels: Kernels
    element: int
    hidden: float
    stream: float
    query: float
    key: float
    value: float
    inner: float
    heads: float

    @property
    def routed_share(self) -> float:
        """Return the share of routed tokens of a rank: sequence parallelism divides them."""
        parallel = self.run.parallelism
        return 1 / parallel.tensor if parallel.sequence_parallel else 1.0

    def trained(self, *targets: word.Target) -> int:
        """Return 1 when one of the matrices has a gradient, or an adapter that reads its input."""
        adapter = self.run.training.adapter
        if adapter is None or self.keeps_quantised_inputs():
            return 1
        if self.drops_adapter_inputs():
            return 0  # each adapter keeps its own dropped copy instead
        return int(any(target in adapter.targets for target in targets))

    def drops_adapter_inputs(self) -> bool:
        """Return whether adapters drop inputs, one by one; kernels that fuse them do not."""
        adapter = self.run.training.adapter
        fused = self.kernels.fused_norm and self.run.model.norm is word.Norm.RMS
        return adapter is not None and adapter.dropout > 0 and not fused

    def keeps_quantised_inputs(self) -> bool:
        """Return whether quantised matrices keep their inputs although they are frozen.

        bitsandbytes did so in 4 bit until 0.43.2 (pull request 1270, of the days of torch 2.4);
        in 8 bit it still does.
        """
        training = self.run.training
        if training.quantization in _NF4:
            return torch_from(training.torch_version, 2, 0) and not torch_from(
                training.torch_version, 2, 4
            )
        return training.quantization is word.Quantization.INT8

    def drops(self) -> bool:
        """Return whether the block drops values: later families do not, whatever adapters do."""
        model = self.run.model
        early = model.norm is word.Norm.LAYER or model.family is word.Family.T5
        return self.run.training.dropout > 0 and early


def block_of(run: Run) -> Block:
    """Return the run's average block."""
    model, parallel, latent = run.model, run.parallelism, run.model.latent
    tensor = parallel.tensor
    hidden = float(model.hidden_size)
    query = model.num_heads * model.head_dim
    key = value = model.num_kv_heads * model.head_dim
    if latent is not None:
        query = key = model.num_heads * (latent.nope_dim + latent.rope_dim)
        value = model.num_heads * latent.value_dim
    return Block(
        run=run,
        kernels=kernels(run),
        element=run.training.compute_dtype.size_bytes,
        hidden=hidden,
        stream=hidden / tensor if parallel.sequence_parallel else hidden,
        query=query / tensor,
        key=key / tensor,
        value=value / tensor,
        inner=model.intermediate_size / tensor,
        heads=model.num_heads / tensor,
    )
