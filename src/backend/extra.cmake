# Highway gives the cpu kernels their vectors and the run-time choice of instruction set. Compiled targets on x86:
# SSE4 (the floor), AVX2, AVX-512. Every Highway source of this folder must see the same set.
find_package(hwy REQUIRED)
target_link_libraries(${lib} PUBLIC hwy::hwy)
target_compile_definitions(${lib} PUBLIC HWY_WANT_SSE4=1)
