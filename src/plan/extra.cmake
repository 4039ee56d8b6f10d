# The certificate's form for machines.
find_package(nlohmann_json REQUIRED)
target_link_libraries(${lib} PUBLIC nlohmann_json::nlohmann_json)
