// libFuzzer harness: any bytes are an IDX array (plain or gzip) that fills its declared shape, or a bad-data error.
// clang++ -std=c++20 -fsanitize=fuzzer,address,undefined -Isrc ...
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/error.h"
#include "data/formats/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const auto content = std::as_bytes(std::span(bytes, size));
  try {
    const auto array = lathe::data::parse_idx({content.begin(), content.end()}, "fuzz.idx");
    unsigned sum = 0;
    for (int64_t i = 0; i < array.shape.numel(); ++i) sum += array.elements()[i];
    volatile unsigned sink = sum;
    (void)sink;
  } catch (const lathe::UserError& error) {
    if (error.exit_code() != lathe::Exit::bad_data) std::abort();
  }
  return 0;
}
