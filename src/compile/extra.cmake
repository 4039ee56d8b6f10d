# targets/*.toml become a generated source.
include(${CMAKE_SOURCE_DIR}/cmake/embed_toml.cmake)
lathe_embed_toml(targets compile/device_spec.h EmbeddedDeviceSpec embedded_device_specs)
