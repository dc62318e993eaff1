"""A CUDA driver that launches nothing, for measuring the Python side of a launch on a machine without a GPU.

`reexec()` compiles a library called libcuda.so.1 whose functions all succeed, and starts the program again with it on the loader's path, so
that `cuda.bindings` and ctypes call it as they would call the driver. Needs a C compiler and Linux. torch tensors in host memory then pass
for ones on GPU 0 (`pretend`). What is measured is everything but the driver's own time.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

MARK = "TESELA_BENCH_STUB"

SOURCE = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, "stub", size); return 0; }
int cuDeviceGetAttribute(int *value, int key, int device) { *value = key == 75 ? 9 : key == 76 ? 0 : 132; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)8; return 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)8; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(void **address, size_t n) { *address = aligned_alloc(256, (n + 255) / 256 * 256); return 0; }
int cuMemFree_v2(void *address) { free(address); return 0; }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t n) { memcpy(to, from, n); return 0; }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t n) { memcpy(to, from, n); return 0; }
int cuMemcpyDtoD_v2(void *to, const void *from, size_t n) { memcpy(to, from, n); return 0; }
int cuModuleLoadData(void **module, const void *image) { *module = (void *)8; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = (void *)8; return 0; }
int cuFuncSetAttribute(void *function, int key, int value) { return 0; }
int cuTensorMapEncodeTiled(void *map) { memset(map, 1, 128); return 0; }
int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c, unsigned s, void *st, void **p, void **e) { return 0; }
int cuLaunchKernelEx(const void *config, void *f, void **p, void **e) { return 0; }
int cuGetErrorString(int status, const char **text) { *text = "stub"; return 0; }
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long long flags, void *status)
{
  char versioned[128];
  snprintf(versioned, sizeof versioned, "%s_v2", name);
  if (!(*found = dlsym(RTLD_DEFAULT, versioned))) *found = dlsym(RTLD_DEFAULT, name);
  return 0;
}
int cuGetProcAddress(const char *name, void **found, int version, unsigned long long flags) { return cuGetProcAddress_v2(name, found, version, flags, NULL); }
"""


def reexec() -> None:
    """Start this program again over the stub; returns in the new one."""
    if made := os.environ.get(MARK):
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        return
    folder = Path(tempfile.mkdtemp(prefix="tesela-stub-"))
    (folder / "stub.c").write_text(SOURCE)
    library = folder / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(folder / "stub.c"), "-ldl"], check=True)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {MARK: str(folder), "LD_LIBRARY_PATH": path})


def pretend() -> None:
    """torch tensors in host memory pass for ones on GPU 0."""
    from tesela.runtime import arrays, shortcuts

    in_host_memory = arrays._view_torch

    def view_torch(tensor: Any, torch: Any, name: str) -> arrays.ArrayView:
        return replace(in_host_memory(tensor, torch, name), device=0, stream=1)

    arrays._view_torch = view_torch
    shortcuts._stream_reader = lambda library: abs
