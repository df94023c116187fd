"""MARP: predicts training memory and speed, and makes plans."""
