#include "comm/control/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"
#include "comm/control/frame.h"

namespace lathe::comm {
namespace {

struct Digest {  // Of a list, or of its beginning.
  uint64_t a = 0x243F6A8885A308D3ull, b = 0x13198A2E03707344ull;

  void add(std::string_view text) {
    const auto mix = [&](uint64_t word) {
      a = (a ^ word) * 0x9E3779B97F4A7C15ull, a ^= a >> 29;
      b = (b + word) * 0xC2B2AE3D27D4EB4Full, b ^= b >> 31;
    };
    mix(text.size());
    for (size_t i = 0; i < text.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
      mix(word);
    }
  }
};

std::string to_bytes(const Digest& d, int64_t count) {
  std::string out;
  Put(out).number(d.a).number(d.b).number(count);
  return out;
}

constexpr size_t kLongestItem = 64 * 1024, kShownBytes = 160, kShownBefore = 24;

// What one rank has at the place of the difference.
struct Entry {
  bool is_there = false;  // the list goes so far
  std::string name, value;
  friend auto operator<=>(const Entry&, const Entry&) = default;
};

std::string to_bytes(std::span<const Item> items, int64_t at) {
  std::string out;
  const bool is_there = at < static_cast<int64_t>(items.size());
  Put p(out);
  p.number<uint8_t>(is_there);
  if (is_there) {
    const Item& item = items[static_cast<size_t>(at)];
    p.text(std::string_view(item.name).substr(0, 1024)).text(std::string_view(item.value).substr(0, kLongestItem));
  }
  return out;
}

Entry parse_entry(std::string_view bytes) {
  Take in(bytes);
  Entry e;
  e.is_there = in.number<uint8_t>();
  if (e.is_there) {
    e.name = in.text();
    e.value = in.text();
  }
  if (!in.at_end()) throw CommError("agree: a rank sent something else than its item");
  return e;
}

// The part of a long value around its difference from the others.
std::string shorten(const std::string& value, size_t same) {
  if (value.size() <= kShownBytes) return value;
  const size_t first = same > kShownBefore ? std::min(same - kShownBefore, value.size() - 1) : 0;
  return fmt::format("{}{}{}", first > 0 ? "..." : "", value.substr(first, kShownBytes),
                     first + kShownBytes < value.size() ? "..." : "");
}

std::string list_some(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == 8) return fmt::format("{} and {} more", text, ranks.size() - i);
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  }
  return text;
}

std::string describe(const std::vector<std::string>& entries, int64_t at) {
  std::map<Entry, std::vector<int>> groups;
  std::string name;
  size_t same = std::string::npos;  // bytes that all values begin with
  const Entry first = parse_entry(entries[0]);
  for (size_t r = 0; r < entries.size(); ++r) {
    const Entry e = parse_entry(entries[r]);
    if (name.empty()) name = e.name;
    const auto [x, y] = std::mismatch(first.value.begin(), first.value.end(), e.value.begin(), e.value.end());
    if (e.value != first.value) same = std::min(same, static_cast<size_t>(x - first.value.begin()));
    groups[e].push_back(static_cast<int>(r));
  }
  if (same == std::string::npos) same = 0;
  std::vector<std::pair<std::vector<int>, const Entry*>> rows;
  for (const auto& [entry, ranks] : groups) rows.emplace_back(ranks, &entry);
  std::sort(rows.begin(), rows.end());
  std::string text = fmt::format("the ranks differ in {} (item {} of what they compare): ", name, at + 1);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == 4) {
      text += fmt::format("; {} more values", rows.size() - i);
      break;
    }
    const Entry& e = *rows[i].second;
    text += fmt::format("{}{}: {}{}", i == 0 ? "" : "; ", list_some(rows[i].first),
                        !e.is_there      ? "nothing more"
                        : e.name == name ? ""
                                         : e.name + " ",
                        e.is_there ? fmt::format("\"{}\"", shorten(e.value, same)) : "");
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

bool all_equal(const std::vector<std::string>& texts) {
  return std::all_of(texts.begin(), texts.end(), [&](const std::string& t) { return t == texts[0]; });
}

}  // namespace

std::string find_difference(std::span<const Item> items, int rank, const Exchange& exchange) {
  std::vector<Digest> digests(items.size() + 1);  // of the first i items
  for (size_t i = 0; i < items.size(); ++i) {
    digests[i + 1] = digests[i];
    digests[i + 1].add(items[i].name);
    digests[i + 1].add(items[i].value);
  }
  const auto count = static_cast<int64_t>(items.size());
  const auto digest_of = [&](int64_t first) {
    const int64_t n = std::clamp<int64_t>(first, 0, count);
    return to_bytes(digests[static_cast<size_t>(n)], n);
  };
  // Rank 0 says how many items are compared next: those of `low` are the same on all ranks, those of `high` are not.
  int64_t low = 0, high = -1, asked = std::numeric_limits<int64_t>::max();
  for (;;) {
    const std::vector<std::string> all = exchange.gather(digest_of(asked));
    std::string next;
    if (rank == 0) {
      const bool same = all_equal(all);
      if (high < 0 && same) {
        asked = -1;
      } else {
        if (high < 0) {
          for (const std::string& digest : all) {
            Take in(digest);
            in.number<uint64_t>(), in.number<uint64_t>();
            high = std::max(high, in.number<int64_t>());
          }
        } else {
          (same ? low : high) = asked;
        }
        asked = high - low <= 1 ? low : low + (high - low) / 2;
      }
      Put(next).number(asked).number<uint8_t>(high - low <= 1);
    }
    const std::string answer = exchange.broadcast(next);
    Take in(answer);
    asked = in.number<int64_t>();
    const bool found = in.number<uint8_t>();
    if (!in.at_end()) throw CommError("agree: rank 0 sent something else than a number of items");
    if (asked < 0) return "";
    if (!found) continue;
    const std::vector<std::string> entries = exchange.gather(to_bytes(items, asked));
    return exchange.broadcast(rank == 0 ? describe(entries, asked) : "");
  }
}

}  // namespace lathe::comm
