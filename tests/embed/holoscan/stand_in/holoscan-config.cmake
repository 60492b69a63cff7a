add_library(holoscan::core INTERFACE IMPORTED)
target_include_directories(holoscan::core INTERFACE ${CMAKE_CURRENT_LIST_DIR})
