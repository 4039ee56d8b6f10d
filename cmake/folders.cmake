# lathe_folder(name DEPENDS libs...): src/name becomes the static library lathe_name from all its sources (sub-folders
# included); its *_test.cpp files become the test program lathe_name_test. src/name/extra.cmake, where it exists, adds
# what the folder needs beyond that (packages, definitions, programs).
# GCC 12 reports maybe-uninitialized inside std::variant, falsely.
set(LATHE_WARNINGS -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized> -Werror)

add_custom_target(unit_tests)  # the test programs of all folders

function(lathe_folder name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  set(dir ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cpp)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "(_test|/main)\\.cpp$")
  set(lib lathe_${name})
  if(NOT sources)
    add_library(${lib} INTERFACE)  # headers alone
    target_link_libraries(${lib} INTERFACE ${ARG_DEPENDS})
    return()
  endif()
  # The files of src/backend/cpu include themselves once per instruction set: each is a unit of its own.
  set(alone ${sources} ${tests})
  list(FILTER alone INCLUDE REGEX "/backend/cpu/")
  if(alone)
    set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  add_library(${lib} STATIC ${sources})
  set_property(GLOBAL APPEND PROPERTY LATHE_LIBRARIES ${lib})
  target_include_directories(${lib} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${lib} PUBLIC ${ARG_DEPENDS})
  target_compile_options(${lib} PRIVATE ${LATHE_WARNINGS})
  # Loops over data get the optimiser's full time; what only builds and plans graphs gets less of it, which saves a third
  # of the time to compile it and shows neither in a step nor in the start.
  if(NOT LATHE_SANITIZE AND NOT name MATCHES "^(base|data|run|bench)$")
    target_compile_options(${lib} PRIVATE -O1)
    list(FILTER alone EXCLUDE REGEX "_test\\.cpp$")
    set_property(SOURCE ${alone} PROPERTY COMPILE_OPTIONS -O2)
  endif()
  if(LATHE_SANITIZE)
    list(JOIN LATHE_SANITIZE "," kinds)
    target_compile_options(${lib} PUBLIC -fsanitize=${kinds} -fno-sanitize-recover=all)
    target_link_options(${lib} PUBLIC -fsanitize=${kinds})
  endif()
  if(EXISTS ${dir}/extra.cmake)
    include(${dir}/extra.cmake)
  endif()
  if(LATHE_TESTS AND tests)
    add_executable(${lib}_test ${tests})
    # Tests need no speed of their own; optimising GoogleTest's macros takes longer than running them.
    target_compile_options(${lib}_test PRIVATE -O0)
    # GoogleTest is parsed once, in the first of the programs.
    if(TARGET lathe_base_test AND NOT name STREQUAL base)
      target_precompile_headers(${lib}_test REUSE_FROM lathe_base_test)
    else()
      target_precompile_headers(${lib}_test PRIVATE <gtest/gtest.h>)
    endif()
    target_link_libraries(${lib}_test PRIVATE ${lib} GTest::gtest_main)
    target_compile_options(${lib}_test PRIVATE -Wall -Wextra $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized> -Werror)
    add_dependencies(unit_tests ${lib}_test)
    add_test(NAME ${name} COMMAND ${lib}_test)
    set_tests_properties(${name} PROPERTIES LABELS unit)
    # The longest first, so that no core is idle at the end; the very longest in two halves.
    if(name MATCHES "^(passes|plan|io|selftest)$")
      set_tests_properties(${name} PROPERTIES COST 50)
    endif()
    if(name MATCHES "^(backend|run)$")
      set_tests_properties(${name} PROPERTIES COST 100 ENVIRONMENT "GTEST_TOTAL_SHARDS=2;GTEST_SHARD_INDEX=0")
      add_test(NAME ${name}_2 COMMAND ${lib}_test)
      set_tests_properties(${name}_2 PROPERTIES LABELS unit COST 100 ENVIRONMENT "GTEST_TOTAL_SHARDS=2;GTEST_SHARD_INDEX=1")
    endif()
  endif()
endfunction()
