"""Tesela: tile programs in, NVIDIA GPU kernels out."""

__version__ = "0.1.0"
