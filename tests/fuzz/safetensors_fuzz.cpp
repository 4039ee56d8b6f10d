// libFuzzer target of the safetensors reader: any bytes give a file or a UserError, never a crash, a hang or much
// memory. Build and run (from the repository's root; -fork=2 uses two cores):
//   clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Isrc
//     tests/fuzz/safetensors_fuzz.cpp src/io/{fs,posix_fs,hash,file_writer,safetensors,safetensors_writer}.cpp
//     src/base/{error,dtype,shape}.cpp -lfmt -lxxhash -o safetensors_fuzz
//   ./safetensors_fuzz -max_len=4096 -rss_limit_mb=512 -timeout=5 CORPUS_DIR
// With FUZZ_SEEDS=dir in the environment it first writes a small valid corpus into that directory.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "io/files/crash_fs.h"
#include "io/safetensors.h"

namespace {

using namespace lathe;

// One file in memory.
void put(io::Fs& fs, const std::string& path, std::span<const std::byte> bytes) {
  io::FileWriter out(fs, path);
  out.write(bytes);
  out.finish();
}

void read_all(io::Fs& fs, const std::string& path) {
  const auto file = io::SafetensorsFile::open(fs, path);
  std::vector<std::byte> buffer;
  int64_t end = file.tensors().empty() ? 0 : file.tensors().front().begin;
  for (const io::TensorEntry& t : file.tensors()) {
    if (t.begin != end || file.find(t.name) != &t) std::abort();  // what the layout checks and the index promise
    end = t.end;
    buffer.resize(static_cast<size_t>(t.bytes()));
    try {
      file.read(t, buffer);
    } catch (const UserError&) {
      if (t.dtype != DType::b8) std::abort();  // only the values of a BOOL tensor can be wrong now
    }
  }
}

void write_seeds(const std::string& dir) {
  io::PosixFs fs;
  const std::vector<std::byte> data(64);
  const auto save = [&](const char* name, std::vector<io::TensorData> tensors, const io::Metadata& metadata) {
    io::FileWriter out(fs, io::join_path(dir, name));
    io::write_safetensors(out, tensors, metadata);
    out.finish();
  };
  const std::span<const std::byte> bytes(data);
  save("empty", {}, {});
  save("one", {{"w", {DType::f32, {2, 3}}, bytes.first(24)}}, {{"k", "v"}});
  save("many",
       {{"a.weight", {DType::f64, {2}}, bytes.first(16)},
        {"b", {DType::b8, {3}}, bytes.first(3)},
        {"c", {DType::i64, {}}, bytes.first(8)},
        {"d", {DType::u8, {0, 5}}, {}}},
       {});
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  if (const char* dir = std::getenv("FUZZ_SEEDS")) write_seeds(dir);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  io::CrashFs fs;
  put(fs, "/raw", io::bytes_of(text));
  // The length field is hard to guess: try the bytes also as a header with a right length and some data behind it.
  const uint64_t length = size;
  std::string framed(8, '\0');
  std::memcpy(framed.data(), &length, 8);
  put(fs, "/framed", io::bytes_of(framed + text + std::string(24, '\1')));
  for (const char* path : {"/raw", "/framed"}) {
    try {
      read_all(fs, path);
    } catch (const UserError&) {
    }
  }
  return 0;
}
