// libFuzzer harness: any bytes are an .npy array that fills its shape, a zip archive of such, or a bad-data error.
// clang++ -std=c++20 -fsanitize=fuzzer,address,undefined -Isrc ...
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/formats/npy.h"
#include "data/formats/zip.h"

namespace {

template <class F>
void guarded(F&& f) {
  try {
    f();
  } catch (const lathe::UserError& error) {
    if (error.exit_code() != lathe::Exit::bad_data) std::abort();
  }
}

void sum(std::vector<std::byte> content) {
  const auto a = lathe::data::parse_npy(std::move(content), "fuzz.npy");
  double total = 0;
  for (int64_t i = 0; i < a.shape.numel(); ++i) total += a.at(i);
  volatile double sink = total;
  (void)sink;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const auto content = std::as_bytes(std::span(bytes, size));
  guarded([&] { sum({content.begin(), content.end()}); });
  guarded([&] {
    // The header's length is hard to guess: the bytes also as a header with a right length and some data behind it.
    std::vector<std::byte> framed;
    for (const char c : std::string("\x93NUMPY\x01\x00", 8)) framed.push_back(static_cast<std::byte>(c));
    const size_t length = std::min<size_t>(size, 65535);
    framed.push_back(static_cast<std::byte>(length & 255));
    framed.push_back(static_cast<std::byte>(length >> 8));
    framed.insert(framed.end(), content.begin(), content.begin() + static_cast<std::ptrdiff_t>(length));
    framed.resize(framed.size() + 24);
    sum(std::move(framed));
  });
  guarded([&] {
    for (const auto& member : lathe::data::zip_members(content, "fuzz.npz"))
      guarded([&] { sum(lathe::data::unzip(content, member, "fuzz.npz")); });
  });
  return 0;
}
