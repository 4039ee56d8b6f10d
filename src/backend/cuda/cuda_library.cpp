#include "backend/cuda/cuda_library.h"

#include "backend/kernels/call.h"
#include "base/error.h"

namespace lathe {

std::vector<std::string> nvrtc_options(const std::string& architecture) {
  return {"--gpu-architecture=" + architecture, "--std=c++17", "--device-as-default-execution-space"};
}

CudaLibrary::CudaLibrary(const cuda::Api& api, std::string architecture, BinaryCache cache, DeviceCounters& counters)
    : api_(api), architecture_(std::move(architecture)), cache_(std::move(cache)), counters_(counters) {}

CudaLibrary::~CudaLibrary() {
  for (const cuda::Module m : modules_) api_.cuModuleUnload(m);
}

const cuda::Function* CudaLibrary::add(const std::string& source, const std::string& kernel) {
  Text& text = texts_[source];
  const auto [at, added] = text.functions.try_emplace(kernel, nullptr);
  if (added && text.module) {
    LATHE_CUDA(api_, cuModuleGetFunction(&at->second, text.module, kernel.c_str()));
  } else if (added) {
    pending_ = true;
  }
  return &at->second;
}

void CudaLibrary::build_pending() {
  if (!pending_) return;
  std::string source = kernel_text::dialect;
  for (const auto& [body, text] : texts_)
    if (!text.module) source += "\n" + body;
  int major = 0, minor = 0;
  LATHE_NVRTC(api_, nvrtcVersion(&major, &minor));
  const std::string key = cache_key(fmt::format("cuda {} nvrtc {}.{}\n{}", architecture_, major, minor, source));
  cuda::Module module = nullptr;
  ++counters_.allocations;
  // An image that the driver refuses is compiled again.
  if (const auto image = cache_.load(key); image && api_.cuModuleLoadData(&module, image->data()) == cuda::kSuccess) {
    ++cache_hits_;
  } else {
    const std::vector<unsigned char> made = compile(source);
    LATHE_CUDA(api_, cuModuleLoadData(&module, made.data()));
    cache_.store(key, made);
    ++builds_;
  }
  modules_.push_back(module);
  for (auto& [body, text] : texts_) {
    if (text.module) continue;
    text.module = module;
    for (auto& [name, function] : text.functions)
      LATHE_CUDA(api_, cuModuleGetFunction(&function, module, name.c_str()));
  }
  pending_ = false;
}

std::vector<std::pair<std::string, std::string>> CudaLibrary::announced() const {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [body, text] : texts_)
    for (const auto& [name, function] : text.functions) out.emplace_back(body, name);
  return out;
}

std::vector<unsigned char> CudaLibrary::compile(const std::string& source) {
  struct Program {
    const cuda::Api& api;
    cuda::RtcProgram handle = nullptr;
    ~Program() {
      if (handle) api.nvrtcDestroyProgram(&handle);
    }
  } program{api_};
  LATHE_NVRTC(api_, nvrtcCreateProgram(&program.handle, source.c_str(), "lathe_kernels.cu", 0, nullptr, nullptr));
  const std::vector<std::string> texts = nvrtc_options(architecture_);
  std::vector<const char*> options;
  for (const std::string& o : texts) options.push_back(o.c_str());
  const int status = api_.nvrtcCompileProgram(program.handle, static_cast<int>(options.size()), options.data());
  if (status != cuda::kRtcSuccess) {
    size_t size = 0;
    api_.nvrtcGetProgramLogSize(program.handle, &size);
    std::string log(size, '\0');
    if (size > 0) api_.nvrtcGetProgramLog(program.handle, log.data());
    int major = 0, minor = 0;
    api_.nvrtcVersion(&major, &minor);
    throw DeviceError(fmt::format("cuda: NVRTC {}.{} cannot compile kernels for {}: {}{}\n{}", major, minor,
                                  architecture_, api_.nvrtcGetErrorString(status),
                                  status == cuda::kRtcErrorInvalidOption
                                      ? "; this NVRTC does not know the card: install the toolkit that came after it"
                                      : "",
                                  log.c_str()));
  }
  size_t size = 0;
  LATHE_NVRTC(api_, nvrtcGetCUBINSize(program.handle, &size));
  std::vector<unsigned char> image(size);
  LATHE_NVRTC(api_, nvrtcGetCUBIN(program.handle, reinterpret_cast<char*>(image.data())));
  return image;
}

}  // namespace lathe
