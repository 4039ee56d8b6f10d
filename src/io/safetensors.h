// safetensors files: 8 bytes of header length (little-endian), a JSON header, then the tensors' bytes without holes.
// The reader treats the file as hostile: it checks everything before it allocates, uses pread (no mmap: a truncated
// file on a network file system must be an error, not SIGBUS), and every error names the file, the byte offset, what
// was expected and what was found. Tensor names are keys, never paths.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "io/files/file_writer.h"
#include "io/files/fs.h"

namespace lathe::io {

using Metadata = std::map<std::string, std::string>;

struct TensorEntry {
  std::string name;
  std::string_view dtype_name;  // as in the file: "F32", "BF16", ...
  std::optional<DType> dtype;   // nullopt: a type of the format that Lathe does not compute with
  Shape shape;
  int64_t begin = 0, end = 0;  // absolute byte offsets in the file

  int64_t bytes() const { return end - begin; }
};

class SafetensorsFile {
 public:
  static constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
  static constexpr int64_t kMaxTensors = 500'000;          // bounds memory and time for a hostile header
  static constexpr int64_t kMaxMetadata = 100'000;
  static constexpr int64_t kMaxStringBytes = 16 << 20;

  static SafetensorsFile open(Fs&, const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }  // in the order of the data
  const Metadata& metadata() const { return metadata_; }
  const TensorEntry* find(std::string_view name) const;
  std::vector<const TensorEntry*> unsupported() const;  // those whose dtype is nullopt

  // `dst` must have exactly the entry's size. BOOL bytes other than 0 and 1 are an error.
  void read(const TensorEntry&, std::span<std::byte> dst) const;

 private:
  explicit SafetensorsFile(File file) : file_(std::move(file)) {}
  void parse_header();
  void check_layout(int64_t data_begin, int64_t file_size);
  void index_names();

  File file_;
  std::vector<TensorEntry> tensors_;
  std::vector<uint32_t> by_name_;  // indices into tensors_, sorted by name
  Metadata metadata_;
};

struct TensorData {
  std::string name;
  TensorType type;
  std::span<const std::byte> bytes;
  // Instead of them: called when its turn comes to be written, and used before the next one is.
  std::function<std::span<const std::byte>()> make = nullptr;
};

int64_t safetensors_size(std::span<const TensorData>, const Metadata& metadata = {});  // bytes of the file
// Writes a whole file's content; the caller finishes the writer. The bytes depend on the arguments alone. Data is laid
// out by element size, largest first, and in the given order among equals, so that every tensor is aligned in the file.
// `metadata` is added to {"format": "pt"}, which other readers expect.
void write_safetensors(FileWriter&, std::span<const TensorData>, const Metadata& metadata = {});

}  // namespace lathe::io
