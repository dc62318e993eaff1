// What check-barriers says of mbarriers used wrongly, at the ptx level; test_check_barriers.py has more, in rings of slots and with roles.
// RUN: tesela-opt %s -p 'check-barriers{walks=4}' --split-input-file --verify-diagnostics

// A right one: announce, copy, wait, read; then again into the same bytes, after all have read.
ptx.kernel @right target sm_90a threads 32 shared 1040 {
  %0 = ptx.constant 0 : !ptx.reg<b32>
  %1 = ptx.constant 1 : !ptx.reg<b32>
  %512 = ptx.constant 512 : !ptx.reg<b32>
  %1024 = ptx.constant 1024 : !ptx.reg<b32>
  %tid = ptx.special "%tid.x" : !ptx.reg<b32>
  %first = ptx.inst "setp.eq.s32" %tid, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %x = ptx.param "x" : !ptx.reg<b64>
  %buffer = ptx.shared_address 0 : !ptx.reg<b32>
  %full = ptx.shared_address 1024 : !ptx.reg<b32>
  ptx.inst "mbarrier.init.shared::cta.b64" %full, %1 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "bar.sync" %0 : (!ptx.reg<b32>) -> ()
  ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %full, %1024 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes" %buffer, %x, %1024, %full if %first : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.wait_parity %full, %0 : !ptx.reg<b32>, !ptx.reg<b32>
  %v = ptx.inst "ld.shared.b32" %buffer : (!ptx.reg<b32>) -> !ptx.reg<b32>
  ptx.inst "fence.proxy.async.shared::cta" : () -> ()
  ptx.inst "bar.sync" %0 : (!ptx.reg<b32>) -> ()
  ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %full, %1024 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes" %buffer, %x, %1024, %full if %first : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.wait_parity %full, %1 : !ptx.reg<b32>, !ptx.reg<b32>
}

// -----

ptx.kernel @missing_wait target sm_90a threads 32 shared 1040 {
  %0 = ptx.constant 0 : !ptx.reg<b32>
  %1 = ptx.constant 1 : !ptx.reg<b32>
  %512 = ptx.constant 512 : !ptx.reg<b32>
  %1024 = ptx.constant 1024 : !ptx.reg<b32>
  %tid = ptx.special "%tid.x" : !ptx.reg<b32>
  %first = ptx.inst "setp.eq.s32" %tid, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %x = ptx.param "x" : !ptx.reg<b64>
  %buffer = ptx.shared_address 0 : !ptx.reg<b32>
  %full = ptx.shared_address 1024 : !ptx.reg<b32>
  ptx.inst "mbarrier.init.shared::cta.b64" %full, %1 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "bar.sync" %0 : (!ptx.reg<b32>) -> ()
  ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %full, %1024 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes" %buffer, %x, %1024, %full if %first : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  // expected-error@+1 {{reads bytes 0 to 1024, which the copy at line ... may not have written yet: warp 0 has not waited for phase 0 of the mbarrier at 1024...}}
  %v = ptx.inst "ld.shared.b32" %buffer : (!ptx.reg<b32>) -> !ptx.reg<b32>
  ptx.wait_parity %full, %0 : !ptx.reg<b32>, !ptx.reg<b32>
}

// -----

ptx.kernel @wrong_phase target sm_90a threads 32 shared 1040 {
  %0 = ptx.constant 0 : !ptx.reg<b32>
  %1 = ptx.constant 1 : !ptx.reg<b32>
  %512 = ptx.constant 512 : !ptx.reg<b32>
  %1024 = ptx.constant 1024 : !ptx.reg<b32>
  %tid = ptx.special "%tid.x" : !ptx.reg<b32>
  %first = ptx.inst "setp.eq.s32" %tid, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %x = ptx.param "x" : !ptx.reg<b64>
  %buffer = ptx.shared_address 0 : !ptx.reg<b32>
  %full = ptx.shared_address 1024 : !ptx.reg<b32>
  ptx.inst "mbarrier.init.shared::cta.b64" %full, %1 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "bar.sync" %0 : (!ptx.reg<b32>) -> ()
  ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %full, %1024 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes" %buffer, %x, %1024, %full if %first : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.wait_parity %full, %0 : !ptx.reg<b32>, !ptx.reg<b32>
  %v = ptx.inst "ld.shared.b32" %buffer : (!ptx.reg<b32>) -> !ptx.reg<b32>
  ptx.inst "fence.proxy.async.shared::cta" : () -> ()
  ptx.inst "bar.sync" %0 : (!ptx.reg<b32>) -> ()
  ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %full, %1024 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes" %buffer, %x, %1024, %full if %first : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  // expected-error@+1 {{waits for a phase of parity 0 of the mbarrier at 1024, but after phase 0 warp 0 has to wait for phase 1, of parity 1...}}
  ptx.wait_parity %full, %0 : !ptx.reg<b32>, !ptx.reg<b32>
}

// -----

ptx.kernel @more_bytes_announced target sm_90a threads 32 shared 1040 {
  %0 = ptx.constant 0 : !ptx.reg<b32>
  %1 = ptx.constant 1 : !ptx.reg<b32>
  %512 = ptx.constant 512 : !ptx.reg<b32>
  %1024 = ptx.constant 1024 : !ptx.reg<b32>
  %tid = ptx.special "%tid.x" : !ptx.reg<b32>
  %first = ptx.inst "setp.eq.s32" %tid, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %x = ptx.param "x" : !ptx.reg<b64>
  %buffer = ptx.shared_address 0 : !ptx.reg<b32>
  %full = ptx.shared_address 1024 : !ptx.reg<b32>
  ptx.inst "mbarrier.init.shared::cta.b64" %full, %1 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "bar.sync" %0 : (!ptx.reg<b32>) -> ()
  %2048 = ptx.constant 2048 : !ptx.reg<b32>
  // expected-error@+1 {{announces 2048 bytes for phase 0 of the mbarrier at 1024, and the copies that complete on it bring 1024: whoever waits for the phase waits for ever...}}
  ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %full, %2048 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes" %buffer, %x, %1024, %full if %first : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.wait_parity %full, %0 : !ptx.reg<b32>, !ptx.reg<b32>
  %v = ptx.inst "ld.shared.b32" %buffer : (!ptx.reg<b32>) -> !ptx.reg<b32>
}

// -----

ptx.kernel @fewer_bytes_announced target sm_90a threads 32 shared 1040 {
  %0 = ptx.constant 0 : !ptx.reg<b32>
  %1 = ptx.constant 1 : !ptx.reg<b32>
  %512 = ptx.constant 512 : !ptx.reg<b32>
  %1024 = ptx.constant 1024 : !ptx.reg<b32>
  %tid = ptx.special "%tid.x" : !ptx.reg<b32>
  %first = ptx.inst "setp.eq.s32" %tid, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %x = ptx.param "x" : !ptx.reg<b64>
  %buffer = ptx.shared_address 0 : !ptx.reg<b32>
  %full = ptx.shared_address 1024 : !ptx.reg<b32>
  ptx.inst "mbarrier.init.shared::cta.b64" %full, %1 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "bar.sync" %0 : (!ptx.reg<b32>) -> ()
  ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %full, %512 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  // expected-error@+1 {{the copies that complete on the mbarrier at 1024 bring 1024 bytes to its phase 0, for which 512 were announced...}}
  ptx.inst "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes" %buffer, %x, %1024, %full if %first : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.wait_parity %full, %0 : !ptx.reg<b32>, !ptx.reg<b32>
  %v = ptx.inst "ld.shared.b32" %buffer : (!ptx.reg<b32>) -> !ptx.reg<b32>
}

// -----

ptx.kernel @arrives_twice target sm_90a threads 32 shared 1040 {
  %0 = ptx.constant 0 : !ptx.reg<b32>
  %1 = ptx.constant 1 : !ptx.reg<b32>
  %512 = ptx.constant 512 : !ptx.reg<b32>
  %1024 = ptx.constant 1024 : !ptx.reg<b32>
  %tid = ptx.special "%tid.x" : !ptx.reg<b32>
  %first = ptx.inst "setp.eq.s32" %tid, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %x = ptx.param "x" : !ptx.reg<b64>
  %buffer = ptx.shared_address 0 : !ptx.reg<b32>
  %full = ptx.shared_address 1024 : !ptx.reg<b32>
  ptx.inst "mbarrier.init.shared::cta.b64" %full, %1 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "bar.sync" %0 : (!ptx.reg<b32>) -> ()
  ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %full, %1024 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  // expected-error@+1 {{one thread arrives on the mbarrier at 1024, whose phase 0 has 1 of its 1 arrivals already...}}
  ptx.inst "mbarrier.arrive.shared::cta.b64" %full if %first : (!ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes" %buffer, %x, %1024, %full if %first : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.wait_parity %full, %0 : !ptx.reg<b32>, !ptx.reg<b32>
  %v = ptx.inst "ld.shared.b32" %buffer : (!ptx.reg<b32>) -> !ptx.reg<b32>
}

// -----

ptx.kernel @nobody_arrives target sm_90a threads 32 shared 1040 {
  %0 = ptx.constant 0 : !ptx.reg<b32>
  %1 = ptx.constant 1 : !ptx.reg<b32>
  %512 = ptx.constant 512 : !ptx.reg<b32>
  %1024 = ptx.constant 1024 : !ptx.reg<b32>
  %tid = ptx.special "%tid.x" : !ptx.reg<b32>
  %first = ptx.inst "setp.eq.s32" %tid, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %x = ptx.param "x" : !ptx.reg<b64>
  %buffer = ptx.shared_address 0 : !ptx.reg<b32>
  %full = ptx.shared_address 1024 : !ptx.reg<b32>
  ptx.inst "mbarrier.init.shared::cta.b64" %full, %1 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "bar.sync" %0 : (!ptx.reg<b32>) -> ()
  // expected-error@+1 {{warp 0 waits for ever: phase 0 of the mbarrier at 1024 has 0 of 1 arrivals...}}
  ptx.wait_parity %full, %0 : !ptx.reg<b32>, !ptx.reg<b32>
  %v = ptx.inst "ld.shared.b32" %buffer : (!ptx.reg<b32>) -> !ptx.reg<b32>
}

// -----

ptx.kernel @overwritten_before_it_came target sm_90a threads 32 shared 1040 {
  %0 = ptx.constant 0 : !ptx.reg<b32>
  %1 = ptx.constant 1 : !ptx.reg<b32>
  %512 = ptx.constant 512 : !ptx.reg<b32>
  %1024 = ptx.constant 1024 : !ptx.reg<b32>
  %tid = ptx.special "%tid.x" : !ptx.reg<b32>
  %first = ptx.inst "setp.eq.s32" %tid, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %x = ptx.param "x" : !ptx.reg<b64>
  %buffer = ptx.shared_address 0 : !ptx.reg<b32>
  %full = ptx.shared_address 1024 : !ptx.reg<b32>
  ptx.inst "mbarrier.init.shared::cta.b64" %full, %1 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "bar.sync" %0 : (!ptx.reg<b32>) -> ()
  ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %full, %1024 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes" %buffer, %x, %1024, %full if %first : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  %other = ptx.shared_address 1032 : !ptx.reg<b32>
  ptx.inst "mbarrier.init.shared::cta.b64" %other, %1 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %other, %1024 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  // expected-error@+1 {{overwrites bytes 0 to 1024, which the copy at line ... may be writing: nobody that this warp has met since has waited for phase 0 of the mbarrier at 1024...}}
  ptx.inst "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes" %buffer, %x, %1024, %other if %first : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.wait_parity %full, %0 : !ptx.reg<b32>, !ptx.reg<b32>
  ptx.wait_parity %other, %0 : !ptx.reg<b32>, !ptx.reg<b32>
}

// -----

ptx.kernel @overwritten_while_read target sm_90a threads 64 shared 1040 {
  %0 = ptx.constant 0 : !ptx.reg<b32>
  %1 = ptx.constant 1 : !ptx.reg<b32>
  %512 = ptx.constant 512 : !ptx.reg<b32>
  %1024 = ptx.constant 1024 : !ptx.reg<b32>
  %tid = ptx.special "%tid.x" : !ptx.reg<b32>
  %first = ptx.inst "setp.eq.s32" %tid, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %x = ptx.param "x" : !ptx.reg<b64>
  %buffer = ptx.shared_address 0 : !ptx.reg<b32>
  %full = ptx.shared_address 1024 : !ptx.reg<b32>
  ptx.inst "mbarrier.init.shared::cta.b64" %full, %1 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "bar.sync" %0 : (!ptx.reg<b32>) -> ()
  ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %full, %1024 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.inst "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes" %buffer, %x, %1024, %full if %first : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.wait_parity %full, %0 : !ptx.reg<b32>, !ptx.reg<b32>
  %v = ptx.inst "ld.shared.b32" %buffer : (!ptx.reg<b32>) -> !ptx.reg<b32>
  ptx.inst "mbarrier.arrive.expect_tx.shared::cta.b64" %full, %1024 if %first : (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  // expected-error@+1 {{overwrites bytes 0 to 1024, which warp 1 may be reading: it has not told this warp that it is done...}}
  ptx.inst "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes" %buffer, %x, %1024, %full if %first : (!ptx.reg<b32>, !ptx.reg<b64>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<pred>) -> ()
  ptx.wait_parity %full, %1 : !ptx.reg<b32>, !ptx.reg<b32>
}

// -----

ptx.kernel @registers_over_the_limit target sm_90a threads 256 shared 1040 {
  %0 = ptx.constant 0 : !ptx.reg<b32>
  %1 = ptx.constant 1 : !ptx.reg<b32>
  %512 = ptx.constant 512 : !ptx.reg<b32>
  %1024 = ptx.constant 1024 : !ptx.reg<b32>
  %tid = ptx.special "%tid.x" : !ptx.reg<b32>
  %first = ptx.inst "setp.eq.s32" %tid, %0 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  %x = ptx.param "x" : !ptx.reg<b64>
  %buffer = ptx.shared_address 0 : !ptx.reg<b32>
  %full = ptx.shared_address 1024 : !ptx.reg<b32>
  %128 = ptx.constant 128 : !ptx.reg<b32>
  %low = ptx.inst "setp.lt.s32" %tid, %128 : (!ptx.reg<b32>, !ptx.reg<b32>) -> !ptx.reg<pred>
  // expected-error@+1 {{registers must be a multiple of 8 from 24 to 256, found 264...}}
  ptx.inst "setmaxnreg.inc.sync.aligned.u32" {imms = [264 : i64]} : () -> ()
}
