"""A plain PyTorch script: byte-level GPT-2 with DistributedDataParallel. Nothing in it is Frenzy's.

By hand:   torchrun --nproc-per-node 2 train.py --steps 20
On Frenzy: frenzy submit job.yaml
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, default=Path(argparse.__file__))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=4, help="sequences per rank and step")
    parser.add_argument("--length", type=int, default=64)
    options = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")

    torch.manual_seed(0)
    config = GPT2Config(
        n_embd=128, n_layer=4, n_head=4, n_positions=256, vocab_size=256,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = DistributedDataParallel(GPT2LMHeadModel(config).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    text = options.text.read_bytes()
    order = torch.Generator().manual_seed(rank)
    for step in range(1, options.steps + 1):
        starts = torch.randint(0, len(text) - options.length, (options.batch,), generator=order)
        rows = [list(text[start : start + options.length]) for start in starts.tolist()]
        tokens = torch.tensor(rows, device=device)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step}/{options.steps} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
