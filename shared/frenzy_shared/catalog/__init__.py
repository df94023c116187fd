"""Data that every service needs: GPUs and model presets, with their lookup."""
