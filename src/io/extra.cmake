# XXH3-128 for file hashes, nlohmann_json for manifests and safetensors headers.
find_package(nlohmann_json REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
target_include_directories(${lib} PRIVATE ${XXHASH_INCLUDE_DIR})
target_link_libraries(${lib} PUBLIC nlohmann_json::nlohmann_json ${XXHASH_LIBRARY})
# libpng writes the pictures of reports and predictions.
find_package(PNG REQUIRED)
target_link_libraries(${lib} PRIVATE PNG::PNG)
