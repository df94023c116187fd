"""What runs inside a rank: training, the memory accountant, reports."""
