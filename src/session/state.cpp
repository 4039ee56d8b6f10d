#include "session/state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "backend/cpu/normal.h"
#include "base/name_hash.h"
#include "base/thread_pool.h"
#include "ir/placement.h"
#include "session/state_parts.h"

namespace lathe {
namespace {

constexpr const char* kStateFiles[] = {kModelFile, kOptimizerFile, kAverageFile};

const char* path_of(StateFile f) {
  switch (f) {
    case StateFile::none: return "";
    case StateFile::model: return kModelFile;
    case StateFile::optimizer: return kOptimizerFile;
    case StateFile::average: return kAverageFile;
  }
  return "";
}

// Where hashes are not compared, a value that is not finite is taken for damage.
void check_finite(const std::string& path, const StateSpec& s, std::span<const std::byte> bytes) {
  if (s.type.dtype != DType::f32) return;
  for (size_t i = 0; i + sizeof(float) <= bytes.size(); i += sizeof(float)) {
    float v;
    std::memcpy(&v, bytes.data() + i, sizeof(v));
    LATHE_USER_CHECK(std::isfinite(v),
                     "{}: element {} of \"{}\" is not finite; with hashes compared (Session::load, or "
                     "checkpoint.verify = \"full\" of a recipe) it would be taken as it is",
                     path, i / sizeof(float), s.name);
  }
}

// dst[i] = src[index of i with axes permuted]; element size in bytes.
void permute(const Shape& src_shape, const Ints& perm, size_t size, const std::byte* src, std::byte* dst) {
  const Ints strides = src_shape.strides();
  Ints shape, step;
  for (const int64_t a : perm) {
    shape.push_back(src_shape[static_cast<int>(a)]);
    step.push_back(strides[static_cast<size_t>(a)]);
  }
  Ints index(perm.size(), 0);
  int64_t at = 0;
  for (int64_t i = 0; i < src_shape.numel(); ++i) {
    std::memcpy(dst + static_cast<size_t>(i) * size, src + static_cast<size_t>(at) * size, size);
    for (size_t d = perm.size(); d-- > 0;) {
      at += step[d];
      if (++index[d] < shape[d]) break;
      at -= step[d] * shape[d];
      index[d] = 0;
    }
  }
}

// Of elements `begin` and following of the whole only those of this rank are left.
void keep_own(const StateSpec& s, int64_t begin, std::vector<float>& values) {
  if (!s.part.is_part()) return;
  const auto end = begin + static_cast<int64_t>(values.size());
  auto to = values.begin();
  for_each_run(s.whole_type().shape, static_cast<int>(s.part.axis), s.own(), [&](int64_t at, int64_t, int64_t count) {
    const int64_t from = std::max(at, begin), last = std::min(at + count, end);
    if (from < last) to = std::copy(values.begin() + (from - begin), values.begin() + (last - begin), to);
  });
  values.erase(to, values.end());
}

}  // namespace

void initial_values(const StateSpec& s, int64_t seed, int64_t begin, std::span<float> out) {
  const cpu::UniformKey key =
      cpu::uniform_key(static_cast<uint64_t>(seed), name_hash(s.name), 0x696e6974u, 0);  // "init"
  LATHE_CHECK(begin % cpu::kUniformBlock == 0, "begins at {}", begin);
  const auto n = static_cast<int64_t>(out.size());
  switch (s.init.kind) {
    case Init::Kind::constant: std::ranges::fill(out, static_cast<float>(s.init.value)); return;
    case Init::Kind::uniform:
      for (int64_t i = 0; i < n; i += cpu::kUniformBlock)
        cpu::fill_uniform(key, &out[static_cast<size_t>(i)], begin + i, std::min(n - i, cpu::kUniformBlock));
      for (float& v : out) v = static_cast<float>(s.init.value * (2.0 * v - 1.0));
      return;
    case Init::Kind::normal:
      for (int64_t i = 0; i < n; i += cpu::kNormalBlock)
        cpu::fill_normal(key, s.init.value, &out[static_cast<size_t>(i)], begin + i,
                         std::min(n - i, cpu::kNormalBlock));
      return;
  }
}

const StateSpec& first_value_of(const StateSpec& s, const StateTable& table) {
  const StateSpec* other = s.like.empty() ? nullptr : table.find(s.like);
  return other ? *other : s;
}

void initialize_state(Executor& e, const StateTable& specs, int64_t seed) {
  constexpr int64_t kPiece = 16 * cpu::kUniformBlock, kPart = 64 * kPiece;  // 4 MiB: made and copied within caches
  ThreadPool pool(available_threads());
  std::vector<float> part;
  for (const StateSpec& s : specs) {
    const bool is_float = s.type.dtype == DType::f32;
    LATHE_CHECK(is_float || (s.init.kind == Init::Kind::constant && s.init.value == 0),
                "{}: only floats start at other values", s.name);
    if (!is_float) {
      e.write_state(s.name, std::vector<std::byte>(static_cast<size_t>(s.type.bytes())));
      continue;
    }
    const StateSpec& source = first_value_of(s, specs);
    const int64_t numel = s.whole_type().numel();
    for (int64_t begin = 0; begin < numel; begin += kPart) {
      const int64_t count = std::min(numel - begin, kPart), first = elements_before(s, begin);
      if (elements_before(s, begin + count) == first) continue;  // other ranks have them
      part.resize(static_cast<size_t>(count));
      pool.run_blocks(static_cast<int64_t>(part.size()), kPiece, [&](int64_t from, int64_t to) {
        initial_values(source, seed, begin + from,
                       std::span(part).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)));
      });
      keep_own(s, begin, part);
      e.write_state_part(s.name, first * int64_t{sizeof(float)}, std::as_bytes(std::span(part)));
    }
  }
}

TensorType file_type(const StateSpec& s) {
  return {s.type.dtype, s.file.plain() ? s.whole_type().shape : Shape(s.file.shape)};
}

void to_file_order(const StateSpec& s, std::span<const std::byte> bytes, std::span<std::byte> out) {
  if (s.file.plain())
    std::ranges::copy(bytes, out.begin());  // of no elements, too
  else
    permute(Shape(s.file.view), s.file.perm, static_cast<size_t>(size_of(s.type.dtype)), bytes.data(), out.data());
}

void from_file_order(const StateSpec& s, std::span<const std::byte> bytes, std::span<std::byte> out) {
  if (s.file.plain()) {
    std::ranges::copy(bytes, out.begin());  // of no elements, too
    return;
  }
  const Shape view(s.file.view);
  Ints permuted, inverse(s.file.perm.size());
  for (size_t i = 0; i < s.file.perm.size(); ++i) {
    permuted.push_back(view[static_cast<int>(s.file.perm[i])]);
    inverse[static_cast<size_t>(s.file.perm[i])] = static_cast<int64_t>(i);
  }
  permute(Shape(permuted), inverse, static_cast<size_t>(size_of(s.type.dtype)), bytes.data(), out.data());
}

std::vector<io::CheckpointFile> state_files(Executor& e, const StateTable& specs, Keep keep) {
  const size_t count = e.set().state.size();
  const auto spec_of = [&](size_t i) { return specs.find(e.set().state[i].name); };
  const auto gathered = std::make_shared<WholeState>(e);  // a tensor that ranks have parts of
  const auto data_of = [&](size_t i, std::string name) -> io::TensorData {
    const StateSpec& s = *spec_of(i);
    const auto copy = [&e, s, i, gathered]() -> std::span<const std::byte> {
      if (!s.part.is_part())
        return e.copy_state(
            i, [&](std::span<const std::byte> src, std::span<std::byte> dst) { to_file_order(s, src, dst); });
      gathered->resize(s.whole_type().bytes());
      read_whole_state(e, s, gathered->first(), gathered->second());
      if (s.file.plain()) return gathered->first();
      to_file_order(s, gathered->first(), gathered->second());
      return gathered->second();
    };
    return {std::move(name), file_type(s), {}, copy};
  };
  std::vector<io::CheckpointFile> files;
  for (const std::string_view file : kStateFiles) {
    if (keep == Keep::model && file == kOptimizerFile) continue;
    std::vector<io::TensorData> tensors;
    for (size_t i = 0; i < count; ++i)
      if (const StateSpec& s = *spec_of(i); file == path_of(s.saved_in)) tensors.push_back(data_of(i, s.file_name()));
    // Whoever loads the averages alone has a whole model: what is not averaged stands there as it is.
    if (file == kAverageFile && !tensors.empty())
      for (size_t i = 0; i < count; ++i)
        if (const StateSpec& s = *spec_of(i); s.saved_in == StateFile::model)
          if (std::ranges::find(tensors, s.name, &io::TensorData::name) == tensors.end())
            tensors.push_back(data_of(i, s.name));
    if (file == kAverageFile && tensors.empty()) continue;
    files.push_back(io::tensor_file(std::string(file), std::move(tensors)));
  }
  return files;
}

namespace {

struct OpenFile {
  std::string path;
  io::SafetensorsFile file;
  std::vector<const StateSpec*> specs;
};

// What does not fit, of one file; empty: nothing.
std::string misfits(const OpenFile& open) {
  std::vector<std::string> problems;
  for (const StateSpec* s : open.specs) {
    const io::TensorEntry* t = open.file.find(s->file_name());
    const TensorType type = file_type(*s);
    if (!t)
      problems.push_back(fmt::format("\"{}\" is missing", s->file_name()));
    else if (t->dtype != type.dtype || t->shape != type.shape)
      problems.push_back(fmt::format("\"{}\": expected {}, got {}{}", s->file_name(), to_string(type), t->dtype_name,
                                     to_string(t->shape)));
  }
  if (problems.empty()) return "";
  constexpr size_t kShown = 10;
  const size_t more = problems.size() - std::min(problems.size(), kShown);
  problems.resize(problems.size() - more);
  return fmt::format("{}: does not fit: {}{}", open.path, fmt::join(problems, "; "),
                     more > 0 ? fmt::format("; and {} more", more) : "");
}

}  // namespace

void load_state(Executor& e, const StateTable& specs, io::Fs& fs, const std::string& checkpoint, io::Verify verified,
                Keep keep) {
  std::vector<OpenFile> files;
  std::vector<std::string> problems;
  for (const std::string_view name : kStateFiles) {
    if (keep == Keep::model && name == kOptimizerFile) continue;
    std::vector<const StateSpec*> here;
    for (const StateSpec& s : specs)
      if (name == path_of(s.saved_in)) here.push_back(&s);
    if (here.empty()) continue;
    const std::string path = io::join_path(checkpoint, std::string(name));
    files.push_back({path, io::SafetensorsFile::open(fs, path), std::move(here)});
    if (std::string problem = misfits(files.back()); !problem.empty()) problems.push_back(std::move(problem));
  }
  LATHE_USER_CHECK(problems.empty(), "{}", fmt::join(problems, "\n"));
  WholeState room(e);
  const auto each = [&](auto&& f) {
    for (const OpenFile& open : files)
      for (const StateSpec* s : open.specs) {
        room.resize(s->whole_type().bytes());
        open.file.read(*open.file.find(s->file_name()), room.first());
        f(open.path, *s);
      }
  };
  // Twice read rather than kept: a checkpoint may be most of the host's memory.
  if (verified != io::Verify::full)
    each([&](const std::string& path, const StateSpec& s) { check_finite(path, s, room.first()); });
  each([&](const std::string&, const StateSpec& s) {
    from_file_order(s, room.first(), room.second());
    write_whole_state(e, s, room.second(), room.first());
  });
}

}  // namespace lathe
