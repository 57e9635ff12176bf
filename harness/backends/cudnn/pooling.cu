// Windows of a picture in NHWC and fp16: the maximum, or the average without the padding. A thread makes 8 channels of
// one place of the result, which it reads and writes as 16 bytes. Compiled to pooling.ptx, in this folder, by
//
//   nvcc -arch=compute_80 -ptx -o pooling.ptx pooling.cu && sed -i 's/^\.version .*/.version 7.0/' pooling.ptx
//
// (nvcc 13.0.88). compute_80 is the oldest that has max.NaN.f16x2, which passes NaN on as cuDNN does; 7.0 the first
// PTX version that has compute_80: nvcc writes its own, which a driver older than nvcc refuses.

struct Shape {
    int places;    // of the result, times its groups of 8 channels
    int groups;    // of 8 channels
    int height, width, out_height, out_width;
    int window_height, window_width, stride_height, stride_width, top, left;
};

__device__ unsigned larger(unsigned a, unsigned b)
{
    unsigned found;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(found) : "r"(a), "r"(b));
    return found;
}

__device__ float2 widened(unsigned halves)
{
    float2 found;
    asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
        : "=f"(found.x), "=f"(found.y) : "r"(halves));
    return found;
}

__device__ unsigned narrowed(float low, float high)
{
    unsigned found;
    asm("{.reg .f16 a, b; cvt.rn.f16.f32 a, %1; cvt.rn.f16.f32 b, %2; mov.b32 %0, {a, b};}"
        : "=r"(found) : "f"(low), "f"(high));
    return found;
}

struct Maximum {
    uint4 kept;
    __device__ Maximum() : kept(make_uint4(0xfc00fc00u, 0xfc00fc00u, 0xfc00fc00u, 0xfc00fc00u)) {}  // minus infinity
    __device__ void take(uint4 one)
    {
        kept = make_uint4(larger(kept.x, one.x), larger(kept.y, one.y), larger(kept.z, one.z), larger(kept.w, one.w));
    }
    __device__ uint4 result() const { return kept; }
};

struct Average {
    float2 sums[4];
    int count;
    __device__ Average() : count(0)
    {
        for (int i = 0; i < 4; ++i) sums[i] = make_float2(0, 0);
    }
    __device__ void take(uint4 one)
    {
        const unsigned parts[4] = {one.x, one.y, one.z, one.w};
        for (int i = 0; i < 4; ++i) {
            const float2 two = widened(parts[i]);
            sums[i].x += two.x;
            sums[i].y += two.y;
        }
        ++count;
    }
    __device__ uint4 result() const
    {
        unsigned parts[4];
        for (int i = 0; i < 4; ++i) parts[i] = narrowed(sums[i].x / count, sums[i].y / count);
        return make_uint4(parts[0], parts[1], parts[2], parts[3]);
    }
};

// size: of a square window, for the maximum alone; 0 where the extents of the window are known only at run time.
template <class Kept, int size>
__device__ void pooled(const uint4 *source, uint4 *result, Shape s)
{
    const int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= s.places) return;
    const int window_height = size ? size : s.window_height, window_width = size ? size : s.window_width;
    int rest = index;
    const int group = rest % s.groups;
    rest /= s.groups;
    const int column = rest % s.out_width;
    rest /= s.out_width;
    const int row = rest % s.out_height;
    const long long picture = rest / s.out_height;
    const int top = row * s.stride_height - s.top, left = column * s.stride_width - s.left;
    Kept kept;
#pragma unroll size ? size : 1
    for (int y = 0; y < window_height; ++y) {
#pragma unroll size ? size : 7
        for (int x = 0; x < window_width; ++x) {
            int from_row = top + y, from_column = left + x;
            if (size) {  // the maximum over the border's pixels again is the same, and no load waits for a branch
                from_row = min(max(from_row, 0), s.height - 1);
                from_column = min(max(from_column, 0), s.width - 1);
            }
            if (from_row >= 0 && from_row < s.height && from_column >= 0 && from_column < s.width)
                kept.take(source[((picture * s.height + from_row) * s.width + from_column) * s.groups + group]);
        }
    }
    result[index] = kept.result();
}

extern "C" __global__ void max_pooling(const uint4 *__restrict__ source, uint4 *__restrict__ result, Shape shape)
{
    pooled<Maximum, 0>(source, result, shape);
}

extern "C" __global__ void max_pooling_3x3(const uint4 *__restrict__ source, uint4 *__restrict__ result, Shape shape)
{
    pooled<Maximum, 3>(source, result, shape);
}

extern "C" __global__ void average_pooling(const uint4 *__restrict__ source, uint4 *__restrict__ result, Shape shape)
{
    pooled<Average, 0>(source, result, shape);
}
