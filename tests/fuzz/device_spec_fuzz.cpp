// libFuzzer harness: any bytes are a device spec or a bad-recipe error with its name.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "compile/device_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  try {
    const lathe::DeviceSpec t = lathe::parse_device_spec({reinterpret_cast<const char*>(bytes), size}, "fuzz.toml");
    if (t.memory <= 0 || !(t.bandwidth > 0) || t.peaks.empty()) std::abort();
  } catch (const lathe::UserError& error) {
    if (error.exit_code() != lathe::Exit::bad_recipe) std::abort();
    if (std::string_view(error.what()).substr(0, 10) != "fuzz.toml:") std::abort();
  }
  return 0;
}
