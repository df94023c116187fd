"""Bytes of logits and loss at the moment when they are most, per token of one rank."""

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Run
from frenzy_marp.core.cases.kernels import kernels, torch_from

# transformers' modeling code of these families returns logits as the head computed them.
_LOGITS_NOT_UPCAST = frozenset(
    {
        word.Family.GPT2,
        word.Family.GPT_BIGCODE,
        word.Family.GPT_NEOX,
        word.Family.BLOOM,
        word.Family.OPT,
        word.Family.FALCON,
        word.Family.BERT,
        word.Family.T5,
    }
)
_LIGER_BYTES = 8  # its chunks hold as many logits as the batch has hidden values
_CHUNK_SHARE = 1 / 8  # chunked losses hold a part of the rows at once


def loss_bytes(run: Run) -> float:
    """Return bytes per token: logits, log-probabilities and their gradients.

    Eager, fp32 logits: 4 logits + 4 log-probabilities + 4 + 4 gradients in backward, of which the
    logits live only while something refers to them; 16-bit logits: the same in 16 bit. Fused
    kernels write the gradient over the logits.
    """
    training = run.training
    if training.head is not word.Head.LM:
        return 0.0
    if training.loss is word.LossKernel.LINEAR_FUSED and kernels(run).hugging_face:
        return _LIGER_BYTES * run.model.hidden_size
    vocabulary = run.model.vocab_size / (
        run.parallelism.tensor if training.loss is word.LossKernel.VOCAB_PARALLEL else 1
    )
    if run.parallelism.tensor > 1 and run.parallelism.sequence_parallel:
        vocabulary = run.model.vocab_size / run.parallelism.tensor
    return vocabulary * bytes_per_logit(run)


def bytes_per_logit(run: Run) -> float:
    """Return the bytes that one logit costs at the loss moment, by kernel and precision."""
    training = run.training
    element = training.compute_dtype.size_bytes
    stored = training.logits_dtype.size_bytes if training.logits_dtype else element
    if training.loss is word.LossKernel.LINEAR_FUSED:
        return _CHUNK_SHARE * 2 * element
    if training.loss is word.LossKernel.CHUNKED:
        return element * 2 + _CHUNK_SHARE * 8
    if training.loss is word.LossKernel.FUSED:
        return _fused(run, element)
    if training.loss is word.LossKernel.VOCAB_PARALLEL:
        return _vocabulary_parallel(run, element, stored)
    return _eager(run, element, stored)


def _eager(run: Run, element: int, stored: int) -> float:
    """Hugging Face shifts the logits into a copy of their own, which lives with the logits.

    Where the model leaves its logits in 16 bit, autocast's cross-entropy makes an fp32 copy. Since
    transformers 4.46 (of the days of torch 2.5) one loss function upcasts for every family.
    """
    training = run.training
    each_its_own = not torch_from(training.torch_version, 2, 5)
    kept = stored if training.logits_kept else 0
    if not kernels(run).hugging_face:
        return kept + 3 * stored + (element if stored > element else 0)
    if torch_from(training.torch_version, 2, 6):  # transformers 4.49: the labels are shifted
        return (element if training.logits_kept else 0) + 3 * stored
    not_upcast = each_its_own and run.model.family in _LOGITS_NOT_UPCAST
    if training.autocast and element < 4 and not_upcast:
        return 2 * element + 3 * 4 + stored / 2
    own_precision = not_upcast or run.model.family is word.Family.QWEN
    if stored == element or (own_precision and not training.autocast):
        return 4 * element
    capped = element if run.model.family is word.Family.GEMMA2 else 0  # tanh keeps its output
    return max(kept, element) + 3 * stored + capped


def _fused(run: Run, element: int) -> float:
    if run.training.framework is word.Framework.HF_TRAINER:
        return 4.25 * element  # logits, their shifted copy, the padded gradient, the head's input
    return 2 * element


def _vocabulary_parallel(run: Run, element: int, stored: int) -> float:
    """Logits and their exponentials, which become the gradient; torchtitan's are DTensors."""
    if run.training.framework is word.Framework.TORCHTITAN:
        return 3 * stored
    if run.training.framework is word.Framework.NANOTRON:
        return 3 * stored
    return 2 * element + stored
