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

// The engines that the heuristic offers, best first, and why a careful caller passes the first four by.
enum Engine { kNondeterministic, kTensorCore, kHungry, kRefuses, kPlain, kEngines };

// Rules of descriptors.
bool takes_type(int attribute, int type);
size_t attribute_bytes(int type);
int finalize(Bag&);
std::vector<const Bag*> operations_of(const Bag& graph);  // null where one is gone

// Numbers of a tensor, and where they lie.
size_t span_of(const Bag& tensor);

// What a graph does when it is executed. `pointer` of the functions that make it gives the address of a tensor in the
// pack; null where it has none.
struct GraphRun {
  std::string name;
  std::vector<Access> accesses;  // to memory
  std::function<void()> work;
};

// One convolution.
int finalize_conv(const Bag& operation);
bool conv_has_engine(const Bag& operation);
int64_t conv_workspace(const Bag& operation);
int prepare_conv(const Bag& operation, int engine, const std::function<char*(const Bag&)>& pointer, GraphRun*);

// Graphs of pointwise operations, reductions, products and transposes.
bool is_general(int kind);  // of an operation
int finalize_general(const Bag& operation);
int check_general(const std::vector<const Bag*>& operations);  // as a graph
int64_t general_workspace(const std::vector<const Bag*>& operations);
int prepare_general(const std::vector<const Bag*>& operations, const std::function<char*(const Bag&)>& pointer,
                    GraphRun*);

}  // namespace lathe::sim
