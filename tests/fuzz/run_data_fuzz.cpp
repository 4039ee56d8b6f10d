// libFuzzer harness: any bytes, with the checksum that belongs to them, are what a run knows of its data, or a bad-data
// error; what was read is written and read again as itself.
// clang++ -std=c++20 -fsanitize=fuzzer,address,undefined -Isrc ...
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "io/checksum.h"
#include "rundir/run_data.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace lathe;
  std::string text(reinterpret_cast<const char*>(bytes), size);
  if (!text.ends_with("\n}")) text += "\n}";
  try {
    const std::string again = to_json(parse_run_data(io::with_checksum(text), "fuzz.json"));
    if (to_json(parse_run_data(again, "again.json")) != again) std::abort();
  } catch (const UserError& error) {
    if (error.exit_code() != Exit::bad_data || std::string(error.what()).rfind("fuzz.json", 0) != 0) std::abort();
  }
  return 0;
}
