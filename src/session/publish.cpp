#include "session/publish.h"

#include <charconv>
#include <optional>
#include <vector>

#include "comm/text.h"

namespace lathe {
namespace {

constexpr char kWell = '+', kFailed = '-';

// What f gives, or the UserError that it throws, as a text for other ranks.
template <class F>
std::string say(F&& f) {
  try {
    return kWell + f();
  } catch (const UserError& e) {
    return fmt::format("{}{} {}", kFailed, static_cast<int>(e.exit_code()), e.what());
  }
}

// The number that a text begins with, which is taken off it together with the character behind it.
int64_t take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  LATHE_CHECK(error == std::errc() && end != text.data() + text.size(), "no number: {}", text);
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return number;
}

// The same, of another rank: what it gave, or its error.
std::string hear(std::string_view said, std::string_view who = "") {
  LATHE_CHECK(!said.empty(), "a rank said nothing");
  const bool failed = said.front() == kFailed;
  said.remove_prefix(1);
  if (!failed) return std::string(said);
  const auto exit = static_cast<Exit>(take_number(said));
  throw UserError(fmt::format("{}{}", who, said), exit);
}

std::string to_text(std::span<const io::FileDigest> digests) {
  std::string text;
  for (const io::FileDigest& d : digests) text += fmt::format("{} {}\n", d.size, d.xxh3);
  return text;
}

std::vector<io::FileDigest> digests_from(std::string_view text) {
  std::vector<io::FileDigest> digests;
  while (!text.empty()) {
    const int64_t size = take_number(text);
    const size_t end = text.find('\n');
    digests.push_back({size, std::string(text.substr(0, end))});
    text.remove_prefix(end + 1);
  }
  return digests;
}

// Of each file what all ranks wrote of it.
void record(io::CheckpointWriter& writer, std::span<const io::CheckpointFile> files,
            std::span<const std::string> wrote) {
  std::vector<std::vector<io::FileDigest>> by_rank;
  for (size_t r = 0; r < wrote.size(); ++r)
    by_rank.push_back(digests_from(hear(wrote[r], fmt::format("rank {}: ", r))));
  for (size_t f = 0; f < files.size(); ++f) {
    std::vector<io::FileDigest> pieces;
    for (const auto& rank : by_rank) pieces.push_back(rank.at(f));
    writer.record(files[f].name, std::move(pieces));
  }
}

}  // namespace

std::string publish_checkpoint(comm::Group* group, io::Fs& fs, const std::string& dir, std::string_view job_id,
                               const std::function<io::Manifest()>& about, std::span<const io::CheckpointFile> files) {
  if (!group) return io::publish_checkpoint(fs, dir, job_id, about(), files);
  const bool is_first = group->rank() == 0;
  std::optional<io::CheckpointWriter> writer;
  std::optional<std::string> existing;
  const auto prepare = [&]() -> std::string {
    const io::Manifest manifest = about();
    existing = io::existing_checkpoint(fs, dir, manifest);
    if (existing) return "";
    writer.emplace(fs, dir, job_id, manifest);
    writer->prepare(files);
    return writer->path();
  };
  const std::string path = hear(comm::broadcast_text(*group, is_first ? say(prepare) : ""));
  std::vector<std::string> wrote;
  if (!path.empty())
    wrote = comm::gather_text(
        *group, say([&] { return to_text(io::write_slices(fs, path, files, group->size(), group->rank())); }));
  const auto publish = [&]() -> std::string {
    if (existing) return *existing;
    record(*writer, files, wrote);
    return writer->publish();
  };
  return hear(comm::broadcast_text(*group, is_first ? say(publish) : ""));
}

}  // namespace lathe
