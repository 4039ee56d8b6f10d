# Highway gives the cpu kernels their vectors and the run-time choice of instruction set. Compiled targets on x86:
# SSE4 (the floor), AVX2, AVX-512. Every Highway source of this folder must see the same set.
find_package(hwy REQUIRED)
target_link_libraries(${lib} PUBLIC hwy::hwy)
target_compile_definitions(${lib} PUBLIC HWY_WANT_SSE4=1)

# opencl: kernel texts are embedded; the ICD loader is opened at run time, so only its headers are needed here.
include(${CMAKE_SOURCE_DIR}/cmake/embed_text.cmake)
lathe_embed_text(${lib} lathe::kernel_text ${dir}/kernels/dialect.h ${dir}/kernels/product.k ${dir}/kernels/pool.k ${dir}/kernels/attention.k ${dir}/kernels/index.k
                 ${dir}/kernels/random.k)
find_path(LATHE_OPENCL_HEADERS CL/cl.h REQUIRED)
target_include_directories(${lib} SYSTEM PRIVATE ${LATHE_OPENCL_HEADERS})
target_link_libraries(${lib} PRIVATE ${CMAKE_DL_LIBS})
