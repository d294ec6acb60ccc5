"""Weights of NVIDIA's recipes."""
