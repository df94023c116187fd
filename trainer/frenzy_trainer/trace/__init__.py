"""Measure the memory of a training run without running it: tensors with sizes but no contents.

``python -m frenzy_trainer.trace`` reads a ``TraceRequest`` and writes a ``TraceAnswer``. It is a
supervisor: the trace itself runs in a child process with limits (``worker.py``), answers are kept
on disk (``cache.py``). docs/explanation/memory.md says how far a trace can be trusted.
"""
