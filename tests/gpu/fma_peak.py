"""The rate of float32 multiply-adds that the GPU reaches when it does nothing else, with CuPy; None without it."""


SOURCE = r"""
extern "C" __global__ void chains(float *out, float a, float b) {
    float v[16];
    for (int i = 0; i < 16; ++i) v[i] = threadIdx.x + i;
    for (int r = 0; r < 4096; ++r)
        #pragma unroll
        for (int i = 0; i < 16; ++i) v[i] = fmaf(v[i], a, b);
    float sum = 0;
    for (int i = 0; i < 16; ++i) sum += v[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""


def tflops():
    try:
        import cupy
    except ImportError:
        return None
    kernel = cupy.RawKernel(SOURCE, "chains")
    blocks, threads = 132 * 16, 256
    out = cupy.zeros(blocks * threads, dtype=cupy.float32)
    best = 0.0
    for _ in range(10):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        kernel((blocks,), (threads,), (out, cupy.float32(0.999), cupy.float32(0.001)))
        end.record()
        end.synchronize()
        seconds = cupy.cuda.get_elapsed_time(begin, end) / 1e3
        best = max(best, 2.0 * 16 * 4096 * blocks * threads / seconds / 1e12)
    return best
