// The opencl backend: any OpenCL 1.2 device (GPUs, and CPUs through PoCL) behind the dlopen'ed loader.
#pragma once

#include "backend/backend.h"
#include "backend/opencl/opencl_device.h"
#include "backend/opencl/tile_store.h"

namespace lathe {

const Backend& opencl_backend();

// What open() takes for a device: the form of the kernels (usual_style()), the stored tiles of the device where there
// are some, the folder of compiled programs, whether it is traced (LATHE_OPENCL_TRACE = 1, or a file to write the trace
// to).
OpenClDeviceOptions opencl_device_options(int index);
TileStore opencl_tile_store(int index, LaunchStyle);

}  // namespace lathe
