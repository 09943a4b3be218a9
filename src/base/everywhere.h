/* Scalar functions that the host's kernels and the GPU's both include: one formula for all. */
#ifndef TRI_BASE_EVERYWHERE_H
#define TRI_BASE_EVERYWHERE_H

#ifdef __CUDACC__
#define TRI_EVERYWHERE static __host__ __device__ __forceinline__
#else
#define TRI_EVERYWHERE static inline __attribute__((always_inline))
#endif

#endif
