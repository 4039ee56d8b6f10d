#include "comm/text.h"

#include <algorithm>

#include "comm/collectives.h"

namespace lathe::comm {

std::string broadcast_text(Group& group, const std::string& text) {
  Collectives ranks(group, 4096);
  auto bytes = static_cast<uint64_t>(text.size());
  ranks.broadcast(std::as_writable_bytes(std::span(&bytes, 1)), 0);
  std::string out = text;
  out.resize(bytes);
  ranks.broadcast(std::as_writable_bytes(std::span(out)), 0);
  return out;
}

std::vector<std::string> gather_text(Group& group, const std::string& text) {
  constexpr int kTextTag = 1;  // beside those of collectives
  constexpr size_t kPiece = size_t{1} << 20;
  const Inside inside(group.position(), Position::kNoLabel);
  // One message after another: f(first byte, bytes) starts it.
  const auto each_piece = [&](size_t bytes, auto&& start) {
    for (size_t at = 0; at < bytes; at += kPiece) {
      Message m = start(at, std::min(kPiece, bytes - at));
      group.wait(m);
    }
  };
  uint64_t bytes = text.size();
  if (group.rank() > 0) {
    const auto all = std::as_bytes(std::span(text));
    each_piece(1, [&](size_t, size_t) { return group.send(0, kTextTag, std::as_bytes(std::span(&bytes, 1))); });
    each_piece(bytes, [&](size_t at, size_t n) { return group.send(0, kTextTag, all.subspan(at, n)); });
    return {};
  }
  std::vector<std::string> out{text};
  for (int r = 1; r < group.size(); ++r) {
    each_piece(
        1, [&](size_t, size_t) { return group.receive(r, kTextTag, std::as_writable_bytes(std::span(&bytes, 1))); });
    const auto all = std::as_writable_bytes(std::span(out.emplace_back(bytes, '\0')));
    each_piece(bytes, [&](size_t at, size_t n) { return group.receive(r, kTextTag, all.subspan(at, n)); });
  }
  return out;
}

}  // namespace lathe::comm
