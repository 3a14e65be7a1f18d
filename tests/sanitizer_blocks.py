"""What compute-sanitizer writes, in the forms of its releases: one block each, with blocks of other lines around."""

HEAD = "========= COMPUTE-SANITIZER\n"
WRITE = """\
========= Invalid __global__ write of size 4 bytes
=========     at store+0x80 in fault_kernels.py:10
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0x7f2a9800013c is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2a98000040 of size 256 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main in oob_demo.cu:25 [0x8a81] in oob_demo
=========
"""
OLDER_READ = """\
========= Invalid __global__ read of size 16 bytes
=========     at 0xda0 in /opt/python/layers/moe/fused_moe.py:175:fused_moe_kernel
=========     by thread (96,0,0) in block (44,0,0)
=========     Address 0x763995f9f000 is out of bounds
=========     and is 1,241,911,296 bytes before the nearest allocation at 0x7639e0000000 of size 5,033,164,800 bytes
=========
"""
MISALIGNED = """\
========= Invalid __global__ write of size 8 bytes
=========     at void ns::<unnamed>::store_askew<(bool)0, float>(long *, ns::Args<int>)+0x380
=========     by thread (65,0,0) in block (0,0,0)
=========     Access to 0x7bd889c03041 is misaligned
=========     and is inside the nearest allocation at 0x7bd889c03000 of size 1,024 bytes
=========
"""
RACE = """\
========= Error: Race reported between Write access at reverse(const float *, float *)+0x150 in /src/race.cu:27
=========     and Read access at reverse(const float *, float *)+0x160 in /src/race.cu:30 [4194304 hazards]
=========     and Read access at reverse(const float *, float *)+0x170 in /src/race.cu:30 [16 hazards]
=========
"""
RACE_WARNING = RACE.replace("Error:", "Warning:")
HAZARD = """\
========= ERROR: Potential WAW hazard detected at __shared__ 0x0 in block (0,0,0) :
=========     Write Thread (0,0,0) at WAW()+0x2f0 in raceWAW.cu:20
=========     Write Thread (1,0,0) at WAW()+0x2f0 in raceWAW.cu:20
=========     Current Value : 1, Incoming Value : 2
=========
"""
UNINITIALISED = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at add_one+0x70 in kernels.py:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
"""
UNINITIALISED_IN_CUB = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at 0xa0a50 in /usr/local/include/cub/thread/thread_load.cuh:272:ThreadLoad<LOAD_CG,const unsigned int *>
=========     by thread (30,0,0) in block (1,0,0)
=========     Address 0x7f65e5204710
=========     Device Frame:/usr/local/include/cub/agent/agent_scan.cuh:119:void cub::DeviceScanKernel<int>(int *) [0x30]
=========
"""
UNINITIALISED_IN_TORCH = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out>(int)+0x70
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
"""
UNINITIALISED_COPY = """\
========= Host API memory access error at host access to 0x7fcdc01200 of size 400 bytes
=========     Uninitialized access at 0x7fcdc01300 on access by cudaMemcpy source
=========
"""
BARRIER = """\
========= Barrier error detected. Divergent thread(s) in warp.
=========     at __syncwarp(unsigned int)+0xe0 in sm_30_intrinsics.hpp:110
=========     by thread (37,0,0) in block (0,0,0)
=========         Device Frame: broken_sync(float *, unsigned long)+0xb0 in /src/kernel.cu:12
=========
"""
UNKNOWN = """\
========= Tensor Memory column 32 being accessed by instruction tcgen05.ld is not allocated.
=========     at guardrail_trap+0x1250 in TcmmaGuardrails.cu:99
=========
"""
API_ERROR = """\
========= Program hit cudaErrorLaunchFailure (error 719) due to "launch failure" on CUDA API call to cudaFree.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: main in oob_demo.cu:33 [0x8a2d] in oob_demo
=========
"""
TAIL = """\
========= Target application returned an error
========= ERROR SUMMARY: 131 errors
========= ERROR SUMMARY: 31 errors were not printed. Use --print-limit option to adjust the number of printed errors
"""
RACE_TAIL = "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
NOT_ATTACHED = """\
========= Error: No attachable process found. compute-sanitizer timed-out.
========= Default timeout can be adjusted with --launch-timeout. Awaiting target completion.
"""
