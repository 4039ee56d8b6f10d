// libFuzzer harness: any bytes are a PNG image of the size that it declares, or a bad-data error.
// clang++ -std=c++20 -fsanitize=fuzzer,address,undefined -Isrc ...
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "data/formats/png.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  try {
    const auto image = lathe::data::decode_png(std::as_bytes(std::span(bytes, size)), "fuzz.png", 1 << 20);
    if (image.rgba.size() != static_cast<size_t>(image.height * image.width * 4)) std::abort();
    const auto small = lathe::data::scale_and_crop(image, 8, 12);
    if (small.rgba.size() != 8 * 12 * 4) std::abort();
  } catch (const lathe::UserError& error) {
    if (error.exit_code() != lathe::Exit::bad_data) std::abort();
  }
  return 0;
}
