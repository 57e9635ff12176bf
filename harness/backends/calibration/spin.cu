// One thread that waits a known time on the GPU's nanosecond counter. Compiled to spin.ptx, in this folder, by
//
//   nvcc -arch=compute_75 -ptx -o spin.ptx spin.cu && sed -i 's/^\.version .*/.version 6.3/' spin.ptx
//
// (nvcc 13.0.88). compute_75 is the oldest GPU that this nvcc knows, and 6.3 the first PTX version that has it: nvcc
// writes its own version, which a driver older than nvcc refuses although nothing here needs it.

extern "C" __global__ void spin(unsigned long long duration_ns)
{
    unsigned long long start, now;
    // volatile: read again each time, in this order.
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < duration_ns);
}
