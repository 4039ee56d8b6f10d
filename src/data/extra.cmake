# libdeflate unpacks .gz files; it ships a pkg-config file only.
find_path(LATHE_DEFLATE_INCLUDE libdeflate.h REQUIRED)
find_library(LATHE_DEFLATE_LIBRARY NAMES deflate REQUIRED)
target_include_directories(${lib} PRIVATE ${LATHE_DEFLATE_INCLUDE})
target_link_libraries(${lib} PRIVATE ${LATHE_DEFLATE_LIBRARY})
find_package(PNG REQUIRED)
target_link_libraries(${lib} PRIVATE PNG::PNG)
# The script behind `lathe fetch`, so that the program needs no files.
include(${CMAKE_SOURCE_DIR}/cmake/embed_text.cmake)
lathe_embed_text(${lib} lathe::data ${CMAKE_SOURCE_DIR}/tools/fetch-data)
