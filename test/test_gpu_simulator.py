"""The simulator's tests on a GPU: what they say of an instruction must hold for the hardware too.

A test that says what an instruction computes runs a program by `simulator_harness.run` and compares with a definition. Here the same tests
run with that function on the GPU, so a definition that the hardware does not share fails. Left out are tests of what only the simulator
has: policies, faults, deadlocks, the order of atomics, approximate functions, which it gives exactly, and forms
that the table does not have.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest
import simulator_harness

pytestmark = pytest.mark.gpu

TESTS = {
    "async": """a_ring_of_buffers a_store_writes_whole_units_of_sixteen_bytes blocks_of_a_cluster_exchange_through_shared_memory
        bulk_copies_there_and_back copies_arrive_at_an_mbarrier copies_of_every_size fill_and_element_strides hints_do_nothing
        maps_are_edited_in_the_kernel mbarrier_counts_bytes mbarrier_phases multicast_writes_and_signals_every_block
        partial_copies_fill_with_zeros remote_arrivals_and_async_stores stores_are_clipped swizzled_loads tensor_loads
        tensor_reductions""",
    "control": """barrier_reductions barriers_order_a_block blocks_of_broken_warps collectives_of_some_lanes
        divergence_and_reconvergence elect_and_reductions exited_threads_do_not_hold_up_a_barrier
        generic_addresses_of_several_spaces guards_and_early_exit lanes_arrive_one_by_one_at_an_unaligned_barrier loads_and_stores
        loops_of_different_lengths matrix_moves movmatrix named_barriers_pass_a_token narrow_loads_extend reductions_in_memory
        runs_of_instructions_keep_their_order shuffles votes_and_matches""",
    "kernels": "gemm_mma gemm_wgmma row_softmax",
    "matrix": """mma mma_rounds_and_saturates scales wgmma_from_registers wgmma_from_shared_memory
        wgmma_of_transposed_operands""",
    "meanings": """bit_counting bit_fields conversion_to_eight_bits conversion_to_pairs conversion_to_tf32 directed_modes division
        float_arithmetic float_comparisons floats_to_floats floats_to_integers flushed_functions_of_subnormals fma
        ftz_flushes_operands_and_results funnel_shift half_arithmetic half_fma_rounds_once immediates integer_arithmetic
        integer_comparisons integer_conversions integers_to_floats logic logic_on_predicates lop3_is_its_table min_and_max
        moves_pack_and_unpack multiplication_and_mad packed_halves_are_two_halves prmt rounding_to_integral_values
        saturating_and_unary_integers saturation_to_the_unit_interval selp setp_with_a_third_operand
        shifts_clamp_their_amount sign_operations wide_multiplication xorsign_minimum""",
}
"""test_simulator_NAME.py -> its tests that also run here, without `test_`."""

for _module, _names in TESTS.items():
    for _name in _names.split():
        globals()[f"test_{_name}"] = getattr(importlib.import_module(f"test_simulator_{_module}"), f"test_{_name}")


@pytest.fixture(autouse=True)
def on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from tesela.runtime import driver

    if driver.current_device().capability < (9, 0):
        pytest.skip("the programs are for sm_90a")
    monkeypatch.setattr(simulator_harness, "DEVICE", "cuda")
    yield
