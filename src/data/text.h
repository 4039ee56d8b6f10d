// Text as byte tokens: sample i is the window of T tokens from byte i * T, its targets are the same window moved by
// one.
#pragma once

#include <memory>
#include <string>

#include "data/source.h"

namespace lathe::data {

// Fields "tokens" i32[T] and "targets" i32[T]. Every byte must be < vocab (at most 256). `name` stands in errors.
std::unique_ptr<Source> make_text(std::string text, int64_t sequence, int64_t vocab, std::string name);

// What make_text would make of so many bytes.
SourceInfo describe_text(int64_t bytes, int64_t sequence, int64_t vocab, const std::string& name);

// Of a file the first nine tenths are the train split, the rest is the test split.
std::unique_ptr<Source> load_text(const std::string& path, Split split, int64_t sequence, int64_t vocab);

SourceInfo describe_text_file(const std::string& path, Split split, int64_t sequence, int64_t vocab);  // by its size

// Sentences of a little grammar, at least `bytes` long, ASCII only; the two splits are different texts.
std::string synthetic_text(int64_t bytes, uint64_t seed, Split split);
int64_t synthetic_text_bytes(int64_t bytes, uint64_t seed, Split split);  // its exact length

}  // namespace lathe::data
