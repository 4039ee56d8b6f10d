// TensorBoard event files: scalars by step, appended. A file is a row of records, each with checksums (CRC-32C), each
// an Event in protobuf's wire format.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace lathe::io {

uint32_t crc32c(std::string_view bytes);

class EventFile {
 public:
  // A new file of `dir`. Readers drop what earlier files have past `step`: it is trained again. Times are seconds since
  // 1970. UserError when it cannot be made.
  EventFile(const std::string& dir, int64_t step, double time);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void scalar(std::string_view tag, int64_t step, double value, double time);  // allocates nothing
  void flush();                                                                // UserError: disk full

 private:
  void record(std::string_view event);
  std::FILE* file_;
  std::string path_;
};

}  // namespace lathe::io
