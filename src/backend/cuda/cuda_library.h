// Compiles kernel texts with NVRTC for one device. Texts are collected while kernels are bound and compiled together
// when the first of them is launched or recorded; compiled images are kept on disk. Equal texts are compiled once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_api.h"
#include "backend/kernels/binary_cache.h"

namespace lathe {

// What NVRTC is given for a card ("sm_80"). Nothing that changes results: no fast math.
std::vector<std::string> nvrtc_options(const std::string& architecture);

class CudaLibrary {
 public:
  // `architecture`: "sm_80". The context must be current in every call.
  CudaLibrary(const cuda::Api&, std::string architecture, BinaryCache, DeviceCounters&);
  ~CudaLibrary();
  CudaLibrary(const CudaLibrary&) = delete;
  CudaLibrary& operator=(const CudaLibrary&) = delete;

  // Announces a kernel of a text. The slot stays where it is and is filled by build_pending().
  const cuda::Function* add(const std::string& source, const std::string& kernel);
  // Compiles what was announced since the last build. DeviceError with the compiler's log.
  void build_pending();

  std::vector<std::pair<std::string, std::string>> announced() const;  // texts and their kernels
  int builds() const { return builds_; }                               // images made from source
  int cache_hits() const { return cache_hits_; }                       // images from the cache

 private:
  struct Text {
    cuda::Module module = nullptr;  // null: not compiled yet
    std::map<std::string, cuda::Function, std::less<>> functions;
  };
  std::vector<unsigned char> compile(const std::string& source);

  const cuda::Api& api_;
  std::string architecture_;
  BinaryCache cache_;
  DeviceCounters& counters_;
  std::map<std::string, Text, std::less<>> texts_;
  bool pending_ = false;
  std::vector<cuda::Module> modules_;
  int builds_ = 0, cache_hits_ = 0;
};

}  // namespace lathe
