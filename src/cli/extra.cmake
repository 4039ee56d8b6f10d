find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
target_link_libraries(${lib} PUBLIC CLI11::CLI11 nlohmann_json::nlohmann_json)
# Glue: nothing here is hot, and optimising CLI11 and json takes most of the build. Their headers are parsed once.
target_compile_options(${lib} PRIVATE -O0)
target_precompile_headers(${lib} PRIVATE <CLI/CLI.hpp> <nlohmann/json.hpp> <lathe/lathe.h>)
add_executable(lathe ${dir}/main.cpp)
target_link_libraries(lathe PRIVATE ${lib})
get_property(plugins GLOBAL PROPERTY LATHE_PLUGINS)
if(plugins)
  add_dependencies(lathe ${plugins})  # opened at run time
endif()
target_compile_options(lathe PRIVATE -O0 ${LATHE_WARNINGS})
# What several folders instantiate (vectors of nodes, strings) is linked from the first object that has it. The glue's
# copies, not optimised, must not be the ones that all passes run with: the other folders come first.
get_property(planners GLOBAL PROPERTY LATHE_LIBRARIES)
list(REMOVE_ITEM planners ${lib})
list(TRANSFORM planners REPLACE "(.+)" "$<TARGET_FILE:\\1>")
target_link_options(lathe PRIVATE LINKER:--whole-archive ${planners} LINKER:--no-whole-archive)
