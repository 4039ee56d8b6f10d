find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
target_link_libraries(${lib} PUBLIC CLI11::CLI11 nlohmann_json::nlohmann_json)
# Two large headers that every command includes: parsed once.
target_precompile_headers(${lib} PRIVATE <CLI/CLI.hpp> <nlohmann/json.hpp>)
add_executable(lathe ${dir}/main.cpp)
target_link_libraries(lathe PRIVATE ${lib})
target_compile_options(lathe PRIVATE ${LATHE_WARNINGS})
