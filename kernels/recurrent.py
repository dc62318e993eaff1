"""Recurrences along time as associative scans: a linear recurrence, and the selective scan of state space models.

h ↦ a·h + b is a function; two of them in a row are one of the same form, (a, b) ∘ (c, d) = (a·c, c·b + d), and composing is associative (Blelloch 1990). So a
block takes a stretch of time at once, and carries what it ends with to the next.
"""

from __future__ import annotations

import tesela
from tesela import Array, f32

B, L, D, S = tesela.dims("B L D S")
T = tesela.dtype("T")


@tesela.function
def then(first, second):
    """Two steps h ↦ a·h + b as one."""
    a, b = first
    c, d = second
    return a * c, c * b + d


@tesela.function
def later(first, second):
    """The last of a tile along an axis, as what combining gives."""
    return second


@tesela.kernel
def linear_recurrence(a: Array[T, B, L, D], b: Array[T, B, L, D], h: Array[T, B, L, D], TIME: tesela.constexpr = 64, BD: tesela.constexpr = 32):
    """h[t] = a[t]·h[t - 1] + b[t] along the second dimension from h[-1] = 0, computed in f32."""
    j, batch = tesela.grid(tesela.ceildiv(D, BD), B)
    j = j * BD
    state = tesela.zeros((BD,), f32)
    for t in tesela.range(0, L, TIME):
        # past the end of time nothing changes
        decay = tesela.load(a, (batch, t, j), (TIME, BD), fill=1.0).to(f32)
        decay, drive = tesela.associative_scan(then, (decay, b[batch, t : t + TIME, j : j + BD].to(f32)), 0)
        states = decay * state + drive
        h[batch, t : t + TIME, j : j + BD] = states.to(T)
        state = tesela.reduce(later, states, 0)


@tesela.kernel
def selective_scan(
    x: Array[T, B, L, D],
    delta: Array[T, B, L, D],
    A: Array[f32, D, S],
    input: Array[T, B, L, S],
    output: Array[T, B, L, S],
    skip: Array[f32, D],
    y: Array[T, B, L, D],
    STATES: tesela.constexpr = 16,
    TIME: tesela.constexpr = 16,
    BD: tesela.constexpr = 8,
):
    """y[t, d] = Σₛ output[t, s]·h[t, d, s] + skip[d]·x[t, d] with h[t, d, s] = exp(delta[t, d]·A[d, s])·h[t - 1, d, s] + delta[t, d]·input[t, s]·x[t, d] from
    h = 0 (Gu, Dao 2023, equation 2 and algorithm 2), in f32, rounded once on storing. STATES is a power of two of at least S."""
    j, batch = tesela.grid(tesela.ceildiv(D, BD), B)
    j = j * BD
    rates = A[j : j + BD, 0:STATES]
    through = skip[j : j + BD]
    state = tesela.zeros((BD, STATES), f32)
    for t in tesela.range(0, L, TIME):
        # past the end of time delta is 0: then nothing decays, and nothing is added
        values = x[batch, t : t + TIME, j : j + BD].to(f32)
        step = delta[batch, t : t + TIME, j : j + BD].to(f32)
        decay = tesela.exp(step[:, :, None] * rates)
        drive = (step * values)[:, :, None] * input[batch, t : t + TIME, 0:STATES].to(f32)[:, None, :]
        decay, drive = tesela.associative_scan(then, (decay, drive), 0)
        states = decay * state + drive
        seen = (states * output[batch, t : t + TIME, 0:STATES].to(f32)[:, None, :]).sum(axis=2)
        y[batch, t : t + TIME, j : j + BD] = (seen + through * values).to(T)
        state = tesela.reduce(later, states, 0)
