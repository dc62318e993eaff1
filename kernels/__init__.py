"""Kernels written in the language of `tesela.frontend`, with no private doors: each is a module of its own, to call and to read.

Element types are type variables, bound by the arrays of a call; what is computed in between is f32 and rounded once on storing. Block sizes are
compile-time parameters with defaults that suit a GPU.
"""
