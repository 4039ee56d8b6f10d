// Descriptors of cuDNN's graph API as bags of attributes, shared by the parts of its simulation.
#pragma once

#include <cstring>
#include <functional>

#include "sim_entry.h"
#include "sim_numbers.h"
#include "sim_state.h"

namespace lathe::sim {

struct Attribute {
  int type = 0;
  int64_t count = 0;
  std::vector<char> bytes;
};

struct Bag {
  int kind = 0;
  bool finalized = false;
  std::map<int, Attribute> attributes;
  // Results that the library makes: engine number and the graph it is for.
  int engine = -1;
  const Bag* graph = nullptr;
};

inline int wrong(int status, const std::string& why) { return report(status, "cudnn: " + why); }

template <class T>
std::vector<T> values(const Bag& b, int name) {
  const auto at = b.attributes.find(name);
  if (at == b.attributes.end()) return {};
  std::vector<T> out(at->second.bytes.size() / sizeof(T));
  std::memcpy(out.data(), at->second.bytes.data(), at->second.bytes.size());
  return out;
}
template <class T>
T value(const Bag& b, int name, T missing = {}) {
  const auto all = values<T>(b, name);
  return all.empty() ? missing : all[0];
}
inline const Bag* child(const Bag& b, int name) {
  const void* p = value<const void*>(b, name);
  return is_live(p) ? static_cast<const Bag*>(p) : nullptr;
}

// -1: not a type of numbers in memory.
inline int cuda_type(int dnn) {
  return dnn == kDnnFloat      ? kR32F
         : dnn == kDnnDouble   ? kR64F
         : dnn == kDnnHalf     ? kR16F
         : dnn == kDnnBfloat16 ? kR16BF
                               : -1;
}

// Numbers of a tensor, and where they lie.
size_t span_of(const Bag& tensor);

// Graphs of pointwise operations, reductions, products and transposes.
bool is_general(int kind);  // of an operation
int finalize_general(const Bag& operation);
int check_general(const std::vector<const Bag*>& operations);  // as a graph
struct GeneralRun {
  std::vector<Access> accesses;  // to memory
  std::function<void()> work;
};
// `pointer` gives the address of a tensor in the pack; null where it has none. A driver or cuDNN status.
int prepare_general(const std::vector<const Bag*>& operations, const std::function<char*(const Bag&)>& pointer,
                    GeneralRun* run);

}  // namespace lathe::sim
