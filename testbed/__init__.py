"""The shared vocabulary: what two or more stages use, and nothing else."""
