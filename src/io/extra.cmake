# XXH3-128 for file hashes, nlohmann_json for manifests and safetensors headers.
find_package(nlohmann_json REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
target_include_directories(${lib} PRIVATE ${XXHASH_INCLUDE_DIR})
target_link_libraries(${lib} PUBLIC nlohmann_json::nlohmann_json ${XXHASH_LIBRARY})
# libdeflate packs the pictures of reports; it ships a pkg-config file only.
find_path(LATHE_DEFLATE_INCLUDE libdeflate.h REQUIRED)
find_library(LATHE_DEFLATE_LIBRARY NAMES deflate REQUIRED)
target_include_directories(${lib} PUBLIC ${LATHE_DEFLATE_INCLUDE})
target_link_libraries(${lib} PRIVATE ${LATHE_DEFLATE_LIBRARY})
