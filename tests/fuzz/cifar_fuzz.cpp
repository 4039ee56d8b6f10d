// libFuzzer harness: any bytes are whole CIFAR records with labels in range, or a bad-data error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "data/formats/cifar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace lathe::data;
  for (const CifarRecord& record : {kCifar10, kCifar100, kCifar100Coarse}) {
    try {
      const int64_t n = check_cifar(std::as_bytes(std::span(bytes, size)), record, "fuzz.bin");
      if (n < 1 || n * record.bytes() != static_cast<int64_t>(size)) std::abort();
      for (int64_t i = 0; i < n; ++i)
        if (bytes[i * record.bytes() + record.label] >= record.classes) std::abort();
    } catch (const lathe::UserError& error) {
      if (error.exit_code() != lathe::Exit::bad_data) std::abort();
    }
  }
  return 0;
}
